#include "backend/content/folder_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/refuse.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/writer.hpp"

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

namespace {

namespace fs = std::filesystem;

/// Returns the values of a part, as they are stored.
std::vector<double> stored_values(const StoredPart& part, const WholeTensor& tensor, std::int64_t first_row) {
  const auto begin = tensor.values.begin() + first_row * tensor.columns;
  std::vector<double> values(begin, begin + part.rows * tensor.columns);
  if (part.taps == 1) return values;
  const std::int64_t inputs = tensor.columns / part.taps;
  std::vector<double> stored(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % tensor.columns;
    const std::int64_t to =
        static_cast<std::int64_t>(i) - column + column % inputs * part.taps + column / inputs;
    stored[static_cast<std::size_t>(to)] = values[i];
  }
  return stored;
}

/// Returns a folder's tensors that are not among these, as norms that a model has and nothing uses.
std::vector<std::string> names_without(const WeightsFolder& folder, const std::vector<TensorShape>& some) {
  std::set<std::string> known;
  for (const TensorShape& tensor : some) known.insert(tensor.name);
  std::vector<std::string> others;
  for (const std::string& name : folder.names()) {
    if (known.count(name) == 0) others.push_back(name);
  }
  return others;
}

void copy_other_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.find(".safetensors") != std::string::npos || name.ends_with(".bin"))
      continue;
    write_file_atomically((to / name).string(), read_text_file(entry.path().string()));
  }
}

}  // namespace

void export_folder(const ModelSpec& model, const WholeTensors& tensors, const std::string& from,
                   const std::string& to) {
  const WeightsFolder source(from);
  const StoredNames names(model, [&](const std::string& name) { return source.find(name).has_value(); });
  std::error_code failed;
  fs::create_directories(to, failed);
  if (failed) throw Error(ErrorKind::output, "cannot make the folder: " + failed.message(), to);
  if (fs::equivalent(from, to, failed)) refuse_input(to, "expected another folder than the one that is read");
  std::vector<TensorShape> shapes;
  std::vector<std::pair<const WholeTensor*, std::pair<StoredPart, std::int64_t>>> parts;
  for (const auto& [name, tensor] : tensors) {
    std::int64_t first_row = 0;
    for (const StoredPart& part : names.parts(name, tensor.rows, tensor.columns)) {
      if (!part.absent) {
        shapes.push_back({part.name, source.at(part.name).tensor->dtype, part.shape});
        parts.push_back({&tensor, {part, first_row}});
      }
      first_row += part.rows;
    }
  }
  const std::vector<std::string> unused = names_without(source, shapes);
  for (const std::string& name : unused) shapes.push_back(*source.at(name).tensor);
  WeightsWriter writer(to, shapes);
  for (const auto& [tensor, place] : parts) {
    const std::vector<double> values = stored_values(place.first, *tensor, place.second);
    writer.append(place.first.name, std::span<const double>(values));
  }
  for (const std::string& name : unused) {
    const Weight weight = source.at(name);
    writer.append(name, weight.file->bytes(*weight.tensor));
    weight.file->drop_pages(*weight.tensor);
  }
  writer.finish();
  copy_other_files(from, to);
}

}  // namespace dflop
