#include "backend/content/folder_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/refuse.hpp"

namespace dflop {

FolderWeights::FolderWeights(const ModelSpec& model, const std::string& folder)
    : folder_(folder),
      names_(model, [&](const std::string& name) { return folder_.find(name).has_value(); }) {}

void FolderWeights::read(const Parameter& tensor, Range rows, Range columns, std::span<double> out) const {
  const std::int64_t width = columns.size();
  std::int64_t first = 0;  // row of the part
  for (const StoredPart& part : names_.parts(tensor.name, tensor.rows, tensor.columns)) {
    const Range within{std::max(rows.begin, first), std::min(rows.end, first + part.rows)};
    if (within.size() > 0) {
      const auto place = static_cast<std::size_t>((within.begin - rows.begin) * width);
      read_part(part, tensor, {within.begin - first, within.end - first}, columns,
                out.subspan(place, static_cast<std::size_t>(within.size() * width)));
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
