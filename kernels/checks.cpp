#include "kernels/checks.hpp"

#include <string>

#include "core/error.hpp"

namespace dflop {
namespace {

std::string shape_text(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

[[noreturn]] void fail_check(std::string_view operation, const std::string& message) {
  throw Error(ErrorKind::internal, message, std::string(operation));
}

template <typename AnyMatrix>
void require_rows_and_columns(Argument argument, const AnyMatrix& matrix, std::int64_t rows,
                              std::int64_t columns) {
  const std::string name(argument.name);
  if (matrix.rows != rows || matrix.columns != columns) {
    fail_check(argument.operation, name + " is " + shape_text(matrix.rows, matrix.columns) + ", expected " +
                                       shape_text(rows, columns));
  }
  if (matrix.size() > 0 && matrix.data == nullptr) fail_check(argument.operation, name + " has no memory");
}

}  // namespace

void require_shape(Argument argument, ConstMatrix matrix, std::int64_t rows, std::int64_t columns) {
  require_rows_and_columns(argument, matrix, rows, columns);
}

void require_shape(Argument argument, ConstSums sums, std::int64_t rows, std::int64_t columns) {
  require_rows_and_columns(argument, sums, rows, columns);
}

void require_count(Argument argument, Indices indices, std::int64_t count) {
  if (std::ssize(indices.host) == count) return;
  fail_check(argument.operation, std::string(argument.name) + " has " + std::to_string(indices.host.size()) +
                                     " numbers, expected " + std::to_string(count));
}

void require_below(Argument argument, Indices indices, std::int64_t bound) {
  for (const std::int32_t index : indices.host) {
    if (index >= 0 && index < bound) continue;
    fail_check(argument.operation, std::string(argument.name) + " holds " + std::to_string(index) +
                                       ", expected 0 or more and less than " + std::to_string(bound));
  }
}

void require_windows(std::string_view operation, Indices begin, Indices end, std::int64_t count,
                     std::int64_t rows) {
  require_count({operation, "begin"}, begin, count);
  require_count({operation, "end"}, end, count);
  for (std::size_t i = 0; i < begin.host.size(); ++i) {
    if (begin.host[i] >= 0 && begin.host[i] < end.host[i] && end.host[i] <= rows) continue;
    fail_check(operation, "window " + std::to_string(i) + " is [" + std::to_string(begin.host[i]) + ", " +
                              std::to_string(end.host[i]) + "), expected one or more of " +
                              std::to_string(rows) + " rows");
  }
}

void require_heads(std::string_view operation, const AttentionShape& shape) {
  if (shape.heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 && shape.heads % shape.kv_heads == 0)
    return;
  fail_check(operation, std::to_string(shape.heads) + " heads with " + std::to_string(shape.kv_heads) +
                            " key heads of width " + std::to_string(shape.head_dim) +
                            ", expected all positive and whole groups of heads");
}

void require_paired_heads(std::string_view operation, const AttentionShape& shape) {
  require_heads(operation, shape);
  if (shape.head_dim % 2 == 0) return;
  fail_check(operation, "heads are " + std::to_string(shape.head_dim) + " wide, expected an even number");
}

void require_offsets(std::string_view operation, Indices offsets, std::int64_t rows) {
  if (offsets.host.empty() && rows == 0) return;
  if (offsets.host.empty() || offsets.host.front() != 0 || offsets.host.back() != rows) {
    fail_check(operation, "offsets expected to lead from 0 to the " + std::to_string(rows) + " rows");
  }
  for (std::size_t i = 1; i < offsets.host.size(); ++i) {
    if (offsets.host[i] >= offsets.host[i - 1]) continue;
    fail_check(operation, "offsets fall from " + std::to_string(offsets.host[i - 1]) + " to " +
                              std::to_string(offsets.host[i]) + " at sequence " + std::to_string(i - 1));
  }
}

void require_classes(std::string_view operation, ConstMatrix logits) {
  if (logits.columns < 1) fail_check(operation, "logits have no columns, expected one of each class");
}

void require_ranks(std::string_view operation, int ranks) {
  if (ranks < 1) fail_check(operation, std::to_string(ranks) + " ranks, expected 1 or more");
}

void require_step(const AdamWStep& step) {
  if (step.step < 1) fail_check("adamw", "step is " + std::to_string(step.step) + ", expected 1 or more");
}

}  // namespace dflop
