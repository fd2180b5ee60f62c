#include "traces/weights/own_head.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "traces/weights/folder.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kComparedRows = 64;

std::optional<Weight> find_ending(const WeightsFolder& folder, std::string_view end) {
  for (const std::string& name : folder.names()) {
    if (name == end || name.ends_with("." + std::string(end))) return folder.find(name);
  }
  return std::nullopt;
}

std::vector<double> row_of(const Weight& weight, std::int64_t row) {
  std::vector<double> values(static_cast<std::size_t>(weight.tensor->columns));
  weight.file->read_block(*weight.tensor, {row, row + 1, 0, weight.tensor->columns}, values);
  return values;
}

/// A head trained separately from its embedding differs in all rows, because each step changes all rows of a
/// head and few of an embedding.
bool are_alike(const Weight& a, const Weight& b) {
  if (a.tensor->shape != b.tensor->shape) return false;
  const std::int64_t rows = a.tensor->rows;
  const std::int64_t step = std::max<std::int64_t>(1, rows / kComparedRows);
  for (std::int64_t row = 0; row < rows; row += step) {
    if (row_of(a, row) != row_of(b, row)) return false;
  }
  return true;
}

}  // namespace

std::optional<bool> has_own_head(const std::string& folder) {
  try {
    const WeightsFolder weights(folder);
    const std::optional<Weight> head = find_ending(weights, "lm_head.weight");
    if (!head) return false;
    const std::optional<Weight> embedding = find_ending(weights, "embed_tokens.weight");
    return embedding && !are_alike(*head, *embedding);
  } catch (const Error&) {  // whoever reads the weights gets the error
    return std::nullopt;
  }
}

}  // namespace dflop
