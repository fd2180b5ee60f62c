#include "backend/content/folder_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Finds the names of a folder's weights. Errors name the folder.
StoredNames find_names(const ModelSpec& model, const WeightsFolder& weights, const std::string& folder) {
  try {
    return StoredNames(model, [&](const std::string& name) { return weights.find(name).has_value(); });
  } catch (const Error& error) {
    if (!error.context().empty()) throw;
    throw Error(error.kind(), error.message() + weights.hint_of_both(), folder);
  }
}

/// Returns the place of a stage that holds the whole model.
StagePlace whole_model(const ModelSpec& model) {
  StagePlace place;
  place.stage.encoder_layers = model.encoder.layers;
  place.stage.connector = place.patches = model.encoder.layers > 0;
  place.stage.llm_layers = model.llm.layers;
  place.stage.embedding = place.stage.head = true;
  return place;
}

/// @pre is_decoded(dtype)
NumberType number_type(Dtype dtype) {
  if (dtype == Dtype::f64) return NumberType::f64;
  if (dtype == Dtype::f32) return NumberType::f32;
  return dtype == Dtype::f16 ? NumberType::f16 : NumberType::bf16;
}

}  // namespace

FolderWeights::FolderWeights(const ModelSpec& model, const std::string& folder)
    : folder_(folder), names_(find_names(model, folder_, folder)) {}

/// Returns the stored parts of all tensors of a model.
std::vector<StoredPart> FolderWeights::parts_of(const ModelSpec& model) const {
  std::vector<StoredPart> all;
  for (const Parameter& tensor : stage_parameter_list(model, whole_model(model), 0)) {
    for (StoredPart& part : names_.parts(tensor.name, tensor.rows, tensor.columns))
      all.push_back(std::move(part));
  }
  return all;
}

std::vector<std::string> FolderWeights::missing(const ModelSpec& model) const {
  std::vector<std::string> missing;
  for (const StoredPart& part : parts_of(model)) {
    if (!part.absent && !folder_.find(part.name)) missing.push_back(part.name);
  }
  return missing;
}

std::vector<std::string> FolderWeights::unused(const ModelSpec& model) const {
  std::set<std::string> used;
  for (const StoredPart& part : parts_of(model)) used.insert(part.name);
  std::vector<std::string> unused;
  for (const std::string& name : folder_.names()) {
    if (used.count(name) == 0) unused.push_back(name);
  }
  return unused;
}

void FolderWeights::visit(const Parameter& tensor, Range rows, Range columns,
                          const std::function<void(const StoredRun&)>& visit) const {
  std::int64_t first = 0;  // row of the part
  for (const StoredPart& part : names_.parts(tensor.name, tensor.rows, tensor.columns)) {
    const Range within{std::max(rows.begin, first), std::min(rows.end, first + part.rows)};
    if (within.size() > 0) {
      visit_part(part, tensor, {within.begin - first, within.end - first}, columns, visit);
    }
    first += part.rows;
  }
}

void FolderWeights::visit_part(const StoredPart& part, const Parameter& tensor, Range rows, Range columns,
                               const std::function<void(const StoredRun&)>& visit) const {
  if (part.absent) {
    const std::vector<double> values = values_without_seed(tensor, rows, columns);
    return visit({{NumberType::f64, values.data(), std::ssize(values)}, part.name, folder_.path()});
  }
  const Weight weight = folder_.at(part.name);
  const std::string& file = weight.file->path();
  if (weight.tensor->shape != part.shape) {
    refuse_input(file, "tensor '{}': expected the shape {}, as config.json says, found {}{}", part.name,
                 part.shape, weight.tensor->shape, folder_.hint_of_both());
  }
  if (part.taps > 1) {  // convolutions are small, so they are converted and reordered here
    const std::int64_t inputs = tensor.columns / part.taps;
    std::vector<double> stored(static_cast<std::size_t>(rows.size() * tensor.columns));
    weight.file->read_block(*weight.tensor, {rows.begin, rows.end, 0, tensor.columns}, stored);
    std::vector<double> ordered;
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      for (std::int64_t column = columns.begin; column < columns.end; ++column) {
        const std::int64_t from = row * tensor.columns + column % inputs * part.taps + column / inputs;
        ordered.push_back(stored[static_cast<std::size_t>(from)]);
      }
    }
    return visit({{NumberType::f64, ordered.data(), std::ssize(ordered)}, part.name, file});
  }
  // A tensor that is stored as one row may have several rows here: a bias with one value per row, or a table.
  // Its columns are not split.
  const bool is_one_row = weight.tensor->rows != part.rows;
  const Block block = is_one_row ? Block{0, 1, rows.begin * tensor.columns, rows.end * tensor.columns}
                                 : Block{rows.begin, rows.end, columns.begin, columns.end};
  weight.file->visit_block(*weight.tensor, block, [&](const std::byte* bytes, std::size_t numbers) {
    const NumberType type = number_type(weight.tensor->dtype);
    visit({{type, bytes, static_cast<std::int64_t>(numbers)}, part.name, file});
  });
}

}  // namespace dflop
