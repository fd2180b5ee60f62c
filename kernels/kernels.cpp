// These functions check the arguments of an operation, on every device. A check takes no noticeable time, and
// without it, an operation with a wrong shape would read outside its memory.
#include "kernels/kernels.hpp"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/kernel_choice/kernel_calls.hpp"

namespace dflop {
namespace {

[[noreturn]] void fail_check(std::string_view operation, const std::string& message) {
  throw Error(ErrorKind::internal, message, std::string(operation));
}

// Each require_...() function below throws Error(internal) if its requirement does not hold.

/// An Argument is named as in errors: "linear: weight".
struct Argument {
  std::string_view operation;
  std::string_view name;
};

/// Requires that the matrix is rows x columns and has memory for them.
template <typename Kind, typename Data>
void require_shape(Argument argument, const MatrixOf<Kind, Data>& matrix, std::int64_t rows,
                   std::int64_t columns) {
  if (matrix.rows != rows || matrix.columns != columns) {
    fail_check(argument.operation, fmt::format("{} is {} x {}, expected {} x {}", argument.name, matrix.rows,
                                               matrix.columns, rows, columns));
  }
  if (matrix.size() > 0 && matrix.data == nullptr) {
    fail_check(argument.operation, fmt::format("{} has no memory", argument.name));
  }
}

/// Requires that there are `count` numbers.
void require_count(Argument argument, Indices indices, std::int64_t count) {
  if (std::ssize(indices.host) == count) return;
  fail_check(argument.operation,
             fmt::format("{} has {} numbers, expected {}", argument.name, indices.host.size(), count));
}

/// Requires that each number is in [0, bound).
void require_below(Argument argument, Indices indices, std::int64_t bound) {
  for (const std::int32_t index : indices.host) {
    if (index >= 0 && index < bound) continue;
    fail_check(argument.operation,
               fmt::format("{} holds {}, expected 0 or more and less than {}", argument.name, index, bound));
  }
}

/// Requires that there are `count` windows [begin[i], end[i]) of `taps`, which may be empty.
void require_windows(std::string_view operation, Indices begin, Indices end, std::int64_t count,
                     std::int64_t taps) {
  require_count({operation, "begin"}, begin, count);
  require_count({operation, "end"}, end, count);
  for (std::size_t i = 0; i < begin.host.size(); ++i) {
    if (begin.host[i] >= 0 && begin.host[i] <= end.host[i] && end.host[i] <= taps) continue;
    fail_check(operation, fmt::format("window {} is [{}, {}), expected a range of the {} taps", i,
                                      begin.host[i], end.host[i], taps));
  }
}

/// Requires that all heads are whole, and kv_heads divides heads.
void require_heads(std::string_view operation, const AttentionShape& shape) {
  if (shape.heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 && shape.heads % shape.kv_heads == 0)
    return;
  fail_check(operation, fmt::format("{} heads with {} key heads of width {}, expected positive numbers, and "
                                    "heads that are a multiple of the key heads",
                                    shape.heads, shape.kv_heads, shape.head_dim));
}

/// Requires that the offsets of sequences begin with 0, never fall, and end with `rows`. If `rows` is 0,
/// there may be no offsets.
void require_offsets(std::string_view operation, Indices offsets, std::int64_t rows) {
  if (offsets.host.empty() && rows == 0) return;
  if (offsets.host.empty() || offsets.host.front() != 0 || offsets.host.back() != rows) {
    fail_check(operation, fmt::format("expected offsets from 0 to the {} rows", rows));
  }
  for (std::size_t i = 1; i < offsets.host.size(); ++i) {
    if (offsets.host[i] >= offsets.host[i - 1]) continue;
    fail_check(operation, fmt::format("offsets fall from {} to {} at sequence {}", offsets.host[i - 1],
                                      offsets.host[i], i - 1));
  }
}

/// Requires that logits have a class.
void require_classes(std::string_view operation, ConstMatrix logits) {
  if (logits.columns < 1) fail_check(operation, "logits have no columns, expected one for each class");
}

/// Requires that y, the statistics and, if it has data, `added` have a row for each row of x, and that each
/// row has `statistics` statistics.
void require_norm(std::string_view operation, ConstMatrix y, ConstSums kept, ConstMatrix x, ConstMatrix added,
                  ConstMatrix gamma, std::int64_t statistics) {
  require_shape({operation, "y"}, y, x.rows, x.columns);
  require_shape({operation, "x"}, x, y.rows, y.columns);
  require_shape({operation, "statistics"}, kept, x.rows, statistics);
  if (added.data != nullptr) require_shape({operation, "added"}, added, x.rows, x.columns);
  require_shape({operation, "gamma"}, gamma, 1, x.columns);
}

/// Requires that each requested gradient of a norm has the right shape.
void require_norm_gradients(std::string_view operation, Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix x) {
  if (dx.data != nullptr) require_shape({operation, "dx"}, dx, x.rows, x.columns);
  if (dgamma.columns > 0) require_shape({operation, "dgamma"}, dgamma, 1, x.columns);
  if (dbeta.columns > 0) require_shape({operation, "dbeta"}, dbeta, 1, x.columns);
}

void require_attention(std::string_view operation, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                       const AttentionShape& shape, Indices offsets) {
  require_heads(operation, shape);
  require_shape({operation, "qkv"}, qkv, out.rows, shape.qkv_columns());
  require_shape({operation, "out"}, out, qkv.rows, shape.out_columns());
  require_shape({operation, "statistics"}, statistics, qkv.rows, shape.heads);
  require_offsets(operation, offsets, qkv.rows);
}

// There is one check for each operation of kernels/kernels.hpp.

void check_linear(std::string_view operation, Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  require_shape({operation, "weight"}, weight, y.columns, x.columns);
  require_shape({operation, "x"}, x, y.rows, weight.columns);
  require_shape({operation, "y"}, y, x.rows, weight.rows);
  if (bias.columns > 0) require_shape({operation, "bias"}, bias, 1, weight.rows);
}

void check_linear_backward_input(std::string_view operation, Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  require_shape({operation, "weight"}, weight, dy.columns, dx.columns);
  require_shape({operation, "dy"}, dy, dx.rows, weight.rows);
  require_shape({operation, "dx"}, dx, dy.rows, weight.columns);
}

void check_linear_backward_weight(std::string_view operation, Sums dweight, Sums dbias, ConstMatrix dy,
                                  ConstMatrix x, Beta) {
  require_shape({operation, "dweight"}, dweight, dy.columns, x.columns);
  require_shape({operation, "dy"}, dy, x.rows, dweight.rows);
  require_shape({operation, "x"}, x, dy.rows, dweight.columns);
  if (dbias.columns > 0) require_shape({operation, "dbias"}, dbias, 1, dy.columns);
}

void check_layer_norm(std::string_view operation, Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added,
                      ConstMatrix gamma, ConstMatrix beta, double) {
  require_norm(operation, y, statistics, x, added, gamma, 2);
  require_shape({operation, "beta"}, beta, 1, x.columns);
}

void check_layer_norm_backward(std::string_view operation, Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy,
                               ConstMatrix x, ConstMatrix gamma, ConstSums statistics, ConstMatrix added) {
  require_norm(operation, dy, statistics, x, added, gamma, 2);
  require_norm_gradients(operation, dx, dgamma, dbeta, x);
}

void check_rms_norm(std::string_view operation, Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added,
                    ConstMatrix gamma, double) {
  require_norm(operation, y, statistics, x, added, gamma, 1);
}

void check_rms_norm_backward(std::string_view operation, Matrix dx, Sums dgamma, ConstMatrix dy,
                             ConstMatrix x, ConstMatrix gamma, ConstSums statistics, ConstMatrix added) {
  require_norm(operation, dy, statistics, x, added, gamma, 1);
  require_norm_gradients(operation, dx, dgamma, Sums(), x);
}

void check_gelu(std::string_view operation, Matrix y, ConstMatrix x) {
  require_shape({operation, "y"}, y, x.rows, x.columns);
  require_shape({operation, "x"}, x, y.rows, y.columns);
}

void check_gelu_backward(std::string_view operation, Matrix dx, ConstMatrix dy, ConstMatrix x) {
  require_shape({operation, "dx"}, dx, x.rows, x.columns);
  require_shape({operation, "dy"}, dy, x.rows, x.columns);
  require_shape({operation, "x"}, x, dx.rows, dx.columns);
}

void check_swiglu(std::string_view operation, Matrix y, ConstMatrix x) {
  require_shape({operation, "x"}, x, y.rows, 2 * y.columns);
  require_shape({operation, "y"}, y, x.rows, x.columns / 2);
}

void check_swiglu_backward(std::string_view operation, Matrix dx, ConstMatrix dy, ConstMatrix x) {
  require_shape({operation, "dx"}, dx, x.rows, x.columns);
  require_shape({operation, "x"}, x, dy.rows, 2 * dy.columns);
  require_shape({operation, "dy"}, dy, x.rows, x.columns / 2);
}

void check_rope(std::string_view operation, InOutMatrix qkv, const AttentionShape& shape, Indices rows,
                ConstSums turns, bool) {
  require_heads(operation, shape);
  if (shape.head_dim % 2 != 0) {
    fail_check(operation, fmt::format("heads are {} wide, expected an even number", shape.head_dim));
  }
  require_shape({operation, "qkv"}, qkv, qkv.rows, shape.qkv_columns());
  require_shape({operation, "turns"}, turns, turns.rows, shape.head_dim);
  require_count({operation, "rows"}, rows, qkv.rows);
  require_below({operation, "rows"}, rows, turns.rows);
}

void check_attention(std::string_view operation, Matrix out, Sums statistics, ConstMatrix qkv,
                     const AttentionShape& shape, Indices offsets) {
  require_attention(operation, out, statistics, qkv, shape, offsets);
}

void check_attention_backward(std::string_view operation, Matrix dqkv, ConstMatrix dout, ConstMatrix out,
                              ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape,
                              Indices offsets) {
  require_attention(operation, out, statistics, qkv, shape, offsets);
  require_shape({operation, "dqkv"}, dqkv, qkv.rows, qkv.columns);
  require_shape({operation, "dout"}, dout, out.rows, out.columns);
}

void check_embedding(std::string_view operation, Matrix y, ConstMatrix table, Indices ids, std::int64_t) {
  require_shape({operation, "y"}, y, std::ssize(ids.host), table.columns);
  require_shape({operation, "table"}, table, table.rows, y.columns);
}

void check_embedding_backward(std::string_view operation, Sums dtable, ConstMatrix dy, Indices ids,
                              std::int64_t) {
  require_shape({operation, "dy"}, dy, std::ssize(ids.host), dtable.columns);
  require_shape({operation, "dtable"}, dtable, dtable.rows, dy.columns);
}

void check_mix_rows(std::string_view operation, Matrix y, ConstMatrix x, Indices begin, Indices end,
                    Indices index, ConstSums weights) {
  require_shape({operation, "y"}, y, y.rows, x.columns);
  require_shape({operation, "x"}, x, x.rows, y.columns);
  require_shape({operation, "weights"}, weights, 1, std::ssize(index.host));
  require_windows(operation, begin, end, y.rows, std::ssize(index.host));
  require_below({operation, "index"}, index, x.rows);
}

void check_scale_columns(std::string_view operation, Matrix y, ConstMatrix x, ConstMatrix scale) {
  require_shape({operation, "x"}, x, y.rows, y.columns);
  require_shape({operation, "y"}, y, x.rows, x.columns);
  require_shape({operation, "scale"}, scale, 1, x.columns);
}

void check_column_products(std::string_view operation, Sums sum, ConstMatrix a, ConstMatrix b) {
  require_shape({operation, "a"}, a, b.rows, sum.columns);
  require_shape({operation, "b"}, b, a.rows, sum.columns);
  require_shape({operation, "sum"}, sum, 1, a.columns);
}

void check_gather_rows(std::string_view operation, Matrix y, ConstMatrix x, Indices index) {
  require_shape({operation, "y"}, y, std::ssize(index.host), x.columns);
  require_shape({operation, "x"}, x, x.rows, y.columns);
  require_below({operation, "index"}, index, x.rows);
}

void check_scatter_add_rows(std::string_view operation, InOutMatrix y, ConstMatrix x, Indices index) {
  require_shape({operation, "x"}, x, std::ssize(index.host), y.columns);
  require_shape({operation, "y"}, y, y.rows, x.columns);
  require_below({operation, "index"}, index, y.rows);
}

void check_cross_entropy_parts(std::string_view operation, Sums parts, ConstMatrix logits, Indices targets,
                               std::int64_t) {
  require_shape({operation, "parts"}, parts, logits.rows, 3);
  require_shape({operation, "logits"}, logits, parts.rows, logits.columns);
  require_count({operation, "targets"}, targets, logits.rows);
  require_classes(operation, logits);
}

void check_cross_entropy_merge(std::string_view operation, Sums merged, ConstSums parts, int ranks) {
  if (ranks < 1) fail_check(operation, fmt::format("{} ranks, expected 1 or more", ranks));
  require_shape({operation, "parts"}, parts, ranks * merged.rows, 3);
  require_shape({operation, "merged"}, merged, merged.rows, 3);
}

void check_cross_entropy_backward(std::string_view operation, InOutMatrix logits, Sums loss, ConstSums merged,
                                  Indices targets, std::int64_t, double) {
  require_shape({operation, "merged"}, merged, logits.rows, 3);
  require_shape({operation, "logits"}, logits, merged.rows, logits.columns);
  require_shape({operation, "loss"}, loss, 1, 1);
  require_count({operation, "targets"}, targets, logits.rows);
  require_classes(operation, logits);
}

void check_add(std::string_view operation, InOutMatrix y, ConstMatrix x) {
  require_shape({operation, "x"}, x, y.rows, y.columns);
  require_shape({operation, "y"}, y, x.rows, x.columns);
}

void check_round(std::string_view operation, Matrix y, ConstSums x) {
  require_shape({operation, "x"}, x, y.rows, y.columns);
  require_shape({operation, "y"}, y, x.rows, x.columns);
}

/// Requires a number for each value.
void require_numbers(std::string_view operation, std::int64_t values, const StoredNumbers& x) {
  if (x.count != values) {
    fail_check(operation, fmt::format("x has {} numbers, expected {}", x.count, values));
  }
  if (x.count > 0 && x.data == nullptr) fail_check(operation, "x has no memory");
}

void check_unpack_values(std::string_view operation, Matrix y, Sums not_finite, const StoredNumbers& x) {
  require_shape({operation, "y"}, y, y.rows, y.columns);
  require_shape({operation, "not_finite"}, not_finite, 1, 1);
  require_numbers(operation, y.size(), x);
}

void check_unpack_sums(std::string_view operation, Sums y, const StoredNumbers& x) {
  require_shape({operation, "y"}, y, y.rows, y.columns);
  require_numbers(operation, y.size(), x);
}

/// Checks an operation that takes one matrix, of any shape: that there is memory for it.
template <typename AnyMatrix>
void check_memory(std::string_view operation, AnyMatrix y) {
  require_shape({operation, "y"}, y, y.rows, y.columns);
}

void check_sum_of_squares(std::string_view operation, Sums sum, ConstSums x) {
  require_shape({operation, "sum"}, sum, 1, 1);
  require_shape({operation, "x"}, x, x.rows, x.columns);
}

void check_adamw(std::string_view operation, Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient,
                 const AdamWStep& step) {
  require_shape({operation, "weight"}, weight, gradient.rows, gradient.columns);
  require_shape({operation, "master"}, master, weight.rows, weight.columns);
  require_shape({operation, "m"}, m, weight.rows, weight.columns);
  require_shape({operation, "v"}, v, weight.rows, weight.columns);
  require_shape({operation, "gradient"}, gradient, weight.rows, weight.columns);
  if (step.step < 1) {
    fail_check(operation, fmt::format("step is {}, expected 1 or more", step.step));
  }
}

// Each key_of_...() function below returns the KernelCall by which a guide chooses a variant of the
// operation. The precision is not set, because it is the same for all calls of a Kernels object. Users that
// store keys of several Kernels objects add it.

KernelCall key_of_product(KernelOperation operation, ConstMatrix weight, std::int64_t rows) {
  return {.operation = operation,
          .inner = static_cast<std::int32_t>(weight.columns),
          .outer = static_cast<std::int32_t>(weight.rows),
          .tokens = rows};
}

KernelCall key_of_linear(Matrix, ConstMatrix x, ConstMatrix weight, ConstMatrix) {
  return key_of_product(KernelOperation::linear, weight, x.rows);
}

KernelCall key_of_linear_backward_input(Matrix, ConstMatrix dy, ConstMatrix weight) {
  return key_of_product(KernelOperation::linear_backward_input, weight, dy.rows);
}

KernelCall key_of_linear_backward_weight(Sums dweight, Sums, ConstMatrix dy, ConstMatrix, Beta) {
  return key_of_product(KernelOperation::linear_backward_weight, {nullptr, dweight.rows, dweight.columns},
                        dy.rows);
}

/// Returns the key of an operation on every row alone, by what it writes.
KernelCall key_of_rows(KernelOperation operation, Matrix written) {
  return {
      .operation = operation, .outer = static_cast<std::int32_t>(written.columns), .tokens = written.rows};
}

template <KernelOperation operation>
KernelCall key_of_activation(Matrix y, ConstMatrix) {
  return key_of_rows(operation, y);
}

template <KernelOperation operation>
KernelCall key_of_activation_backward(Matrix dx, ConstMatrix, ConstMatrix) {
  return key_of_rows(operation, dx);
}

KernelCall key_of_sequences(KernelOperation operation, const AttentionShape& shape, Indices offsets) {
  std::int64_t pairs = 0;
  for (std::size_t i = 1; i < offsets.host.size(); ++i) {
    const std::int64_t length = offsets.host[i] - offsets.host[i - 1];
    pairs += length * length;
  }
  return attention_call(operation, shape, offsets.host.empty() ? 0 : offsets.host.back(), pairs);
}

KernelCall key_of_attention(Matrix, Sums, ConstMatrix, const AttentionShape& shape, Indices offsets) {
  return key_of_sequences(KernelOperation::attention, shape, offsets);
}

KernelCall key_of_attention_backward(Matrix, ConstMatrix, ConstMatrix, ConstSums, ConstMatrix,
                                     const AttentionShape& shape, Indices offsets) {
  return key_of_sequences(KernelOperation::attention_backward, shape, offsets);
}

}  // namespace

KernelCall attention_call(KernelOperation operation, const AttentionShape& shape, std::int64_t tokens,
                          std::int64_t pairs) {
  const AttentionHeads heads{shape.heads, shape.kv_heads, shape.head_dim, shape.causal};
  return attention_call(operation, heads, tokens, pairs);
}

void fail_without_function(std::string_view operation) {
  fail_check(operation, "this device's kernels have no function for it");
}

void fail_with_many_variants(std::string_view operation) {
  fail_check(operation, "it has too many variants");
}

Kernels::Kernels(DType dtype)
    : linear("linear", check_linear, key_of_linear),
      linear_backward_input("linear_backward_input", check_linear_backward_input,
                            key_of_linear_backward_input),
      linear_backward_weight("linear_backward_weight", check_linear_backward_weight,
                             key_of_linear_backward_weight),
      layer_norm("layer_norm", check_layer_norm),
      layer_norm_backward("layer_norm_backward", check_layer_norm_backward),
      rms_norm("rms_norm", check_rms_norm),
      rms_norm_backward("rms_norm_backward", check_rms_norm_backward),
      gelu("gelu", check_gelu, key_of_activation<KernelOperation::gelu>),
      gelu_backward("gelu_backward", check_gelu_backward,
                    key_of_activation_backward<KernelOperation::gelu_backward>),
      gelu_erf("gelu_erf", check_gelu),
      gelu_erf_backward("gelu_erf_backward", check_gelu_backward),
      gelu_quick("gelu_quick", check_gelu),
      gelu_quick_backward("gelu_quick_backward", check_gelu_backward),
      swiglu("swiglu", check_swiglu, key_of_activation<KernelOperation::swiglu>),
      swiglu_backward("swiglu_backward", check_swiglu_backward,
                      key_of_activation_backward<KernelOperation::swiglu_backward>),
      rope("rope", check_rope),
      attention("attention", check_attention, key_of_attention),
      attention_backward("attention_backward", check_attention_backward, key_of_attention_backward),
      embedding("embedding", check_embedding),
      embedding_backward("embedding_backward", check_embedding_backward),
      mix_rows("mix_rows", check_mix_rows),
      gather_rows("gather_rows", check_gather_rows),
      scatter_add_rows("scatter_add_rows", check_scatter_add_rows),
      scale_columns("scale_columns", check_scale_columns),
      column_products("column_products", check_column_products),
      cross_entropy_parts("cross_entropy_parts", check_cross_entropy_parts),
      cross_entropy_merge("cross_entropy_merge", check_cross_entropy_merge),
      cross_entropy_backward("cross_entropy_backward", check_cross_entropy_backward),
      add("add", check_add),
      zero_values("zero", check_memory<Matrix>),
      zero_sums("zero", check_memory<Sums>),
      round("round", check_round),
      unpack_values("unpack_values", check_unpack_values),
      unpack_sums("unpack_sums", check_unpack_sums),
      sum_of_squares("sum_of_squares", check_sum_of_squares),
      adamw("adamw", check_adamw),
      dtype_(dtype) {}

void Kernels::guide(KernelGuide* guide) {
  for_each_operation([&](auto operation) { (this->*operation).guide(guide); });
}

VariantNames Kernels::variant_names() const {
  VariantNames names;
  for_each_operation([&](auto member) {
    const auto& operation = this->*member;
    const std::optional<KernelOperation> known = from_string<KernelOperation>(operation.name());
    if (!operation.has_key() || !known) return;
    for (std::size_t v = 0; v < operation.variants(); ++v) {
      names[static_cast<std::size_t>(*known)].emplace_back(operation.variant_name(v));
    }
  });
  return names;
}

}  // namespace dflop
