#include "backend/content/folder_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Finds the names of a folder's weights; errors name the folder.
StoredNames find_names(const ModelSpec& model, const WeightsFolder& weights, const std::string& folder) {
  try {
    return StoredNames(model, [&](const std::string& name) { return weights.find(name).has_value(); });
  } catch (const Error& error) {
    if (!error.context().empty()) throw;
    throw Error(error.kind(), error.message(), folder);
  }
}

/// Returns the place of a stage that has all of a model.
StagePlace whole_model(const ModelSpec& model) {
  StagePlace place;
  place.stage.encoder_layers = model.encoder.layers;
  place.stage.connector = place.patches = model.encoder.layers > 0;
  place.stage.llm_layers = model.llm.layers;
  place.stage.embedding = place.stage.head = true;
  return place;
}

}  // namespace

FolderWeights::FolderWeights(const ModelSpec& model, const std::string& folder)
    : folder_(folder), names_(find_names(model, folder_, folder)) {}

std::vector<std::string> FolderWeights::unused(const ModelSpec& model) const {
  std::set<std::string> used;
  for (const Parameter& tensor : stage_parameter_list(model, whole_model(model), 0)) {
    for (const StoredPart& part : names_.parts(tensor.name, tensor.rows, tensor.columns))
      used.insert(part.name);
  }
  std::vector<std::string> unused;
  for (const std::string& name : folder_.names()) {
    if (used.count(name) == 0) unused.push_back(name);
  }
  return unused;
}

void FolderWeights::read(const Parameter& tensor, Range rows, Range columns, std::span<double> out) const {
  const std::int64_t width = columns.size();
  std::int64_t first = 0;  // row of the part
  for (const StoredPart& part : names_.parts(tensor.name, tensor.rows, tensor.columns)) {
    const Range within{std::max(rows.begin, first), std::min(rows.end, first + part.rows)};
    if (within.size() > 0) {
      const auto place = static_cast<std::size_t>((within.begin - rows.begin) * width);
      const auto values = out.subspan(place, static_cast<std::size_t>(within.size() * width));
      read_part(part, tensor, {within.begin - first, within.end - first}, columns, values);
      // The sum is finite only if all numbers are; those of F32 and narrower types cannot overflow it.
      if (!std::isfinite(std::accumulate(values.begin(), values.end(), 0.0)))
        refuse_input(folder_.at(part.name).file->path(),
                     "tensor '{}': expected finite numbers, found another", part.name);
    }
    first += part.rows;
  }
}

void FolderWeights::read_part(const StoredPart& part, const Parameter& tensor, Range rows, Range columns,
                              std::span<double> out) const {
  if (part.absent) {
    std::fill(out.begin(), out.end(), 0.0);
    return;
  }
  const Weight weight = folder_.at(part.name);
  if (weight.tensor->shape != part.shape) {
    refuse_input(weight.file->path(), "tensor '{}': expected the shape {}, as config.json says, found {}",
                 part.name, part.shape, weight.tensor->shape);
  }
  if (part.taps > 1) {
    const std::int64_t inputs = tensor.columns / part.taps;
    std::vector<double> stored(static_cast<std::size_t>(rows.size() * tensor.columns));
    weight.file->read_block(*weight.tensor, {rows.begin, rows.end, 0, tensor.columns}, stored);
    std::size_t to = 0;
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      for (std::int64_t column = columns.begin; column < columns.end; ++column) {
        const std::int64_t from = row * tensor.columns + column % inputs * part.taps + column / inputs;
        out[to++] = stored[static_cast<std::size_t>(from)];
      }
    }
    return;
  }
  if (weight.tensor->rows == part.rows) {
    weight.file->read_block(*weight.tensor, {rows.begin, rows.end, columns.begin, columns.end}, out);
    return;
  }
  // What is stored as one row has rows here: a bias of a value each, or a table. Its columns are whole.
  weight.file->read_block(*weight.tensor, {0, 1, rows.begin * tensor.columns, rows.end * tensor.columns},
                          out);
}

}  // namespace dflop
