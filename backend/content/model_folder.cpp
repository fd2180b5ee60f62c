#include "backend/content/model_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/content/stored_names.hpp"
#include "core/refuse.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/staged_file.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/folder.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kWrittenAtATime = std::int64_t{1} << 20;  // values

/// A WrittenTensor is a tensor of the new folder.
struct WrittenTensor {
  TensorShape shape;
  const PiecedTensor* trained = nullptr;  ///< null: copied from the first folder
  StoredPart part = {};                   ///< its part of the trained tensor
  std::int64_t first_row = 0;             ///< first row of the part in the trained tensor
};

/// Opens the weights of a folder, if it has any.
std::optional<WeightsFolder> open_weights(const fs::path& folder) {
  std::error_code ignored;
  const bool has_some =
      fs::exists(folder / kWeightsFile, ignored) || fs::exists(folder / kWeightsIndex, ignored);
  return has_some ? std::make_optional<WeightsFolder>(folder.string()) : std::nullopt;
}

/// Returns the tensor names for the new folder: the names in the first folder or, if it has no weights, the
/// names that match its config.
StoredNames names_in(const ModelSpec& model, const fs::path& from, const WeightsFolder* source) {
  if (source != nullptr) {
    return StoredNames(model, [&](const std::string& name) { return source->find(name).has_value(); });
  }
  const std::string config = (from / "config.json").string();
  return StoredNames(model, is_of_opengvlab(read_text_file(config), config));
}

/// Returns whether a stored tensor is the head of a model with tied embeddings. The head is then a copy of
/// the embedding, which would be outdated in the new folder.
bool is_copied_head(const ModelSpec& model, const std::string& name) {
  return model.llm.tied_embeddings && name.ends_with("lm_head.weight");
}

/// Returns the tensors of the new folder: the trained ones, and the first folder's other tensors, such as
/// unused norms.
std::vector<WrittenTensor> tensors_to_write(const StoredNames& names, const ModelSpec& model,
                                            const CheckpointIndex& index, const WeightsFolder* source) {
  std::vector<WrittenTensor> tensors;
  std::set<std::string> trained;
  for (const PiecedTensor& tensor : index.tensors) {
    if (tensor.kind != TensorKind::weight) continue;
    std::int64_t first_row = 0;
    for (StoredPart& part : names.parts(tensor.name, tensor.rows, tensor.columns)) {
      const std::int64_t rows = part.rows;
      if (!part.absent) {
        const Dtype dtype = source == nullptr ? index.dtype : source->at(part.name).tensor->dtype;
        trained.insert(part.name);
        tensors.push_back({{part.name, dtype, part.shape}, &tensor, std::move(part), first_row});
      }
      first_row += rows;
    }
  }
  for (const std::string& name : source == nullptr ? std::vector<std::string>() : source->names()) {
    if (trained.count(name) == 0 && !is_copied_head(model, name))
      tensors.push_back({*source->at(name).tensor});
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const WrittenTensor& a, const WrittenTensor& b) {
    return bits_of(a.shape.dtype) > bits_of(b.shape.dtype);
  });
  return tensors;
}

/// Reorders the values of whole rows into their stored order.
template <typename Real>
void store_taps_inside(int taps, std::int64_t columns, std::vector<Real>& values, std::vector<Real>& stored) {
  const std::int64_t inputs = columns / taps;
  stored.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % columns;
    const std::int64_t row_begin = static_cast<std::int64_t>(i) - column;
    stored[static_cast<std::size_t>(row_begin + column % inputs * taps + column / inputs)] = values[i];
  }
  values.swap(stored);
}

template <typename Real>
void write_trained(const CheckpointReader& weights, const WrittenTensor& tensor, WeightsWriter& writer) {
  const std::int64_t columns = tensor.trained->columns;
  const std::int64_t at_once = std::max<std::int64_t>(1, kWrittenAtATime / columns);
  const std::int64_t end = tensor.first_row + tensor.part.rows;
  std::vector<Real> values;
  std::vector<Real> stored;
  for (std::int64_t row = tensor.first_row; row < end; row += at_once) {
    const std::int64_t rows = std::min(at_once, end - row);
    values.resize(static_cast<std::size_t>(rows * columns));
    weights.read(*tensor.trained, {row, row + rows}, {0, columns}, values);
    if (tensor.part.taps > 1) store_taps_inside(tensor.part.taps, columns, values, stored);
    writer.append(tensor.shape.name, std::span<const Real>(values));
  }
}

void copy_tensor(const WeightsFolder& source, const std::string& name, WeightsWriter& writer) {
  const Weight weight = source.at(name);
  writer.append(name, weight.file->bytes(*weight.tensor));
  weight.file->drop_pages(*weight.tensor);
}

/// Returns whether a file holds weights in a published format, or is an index of such files.
bool is_of_weights(const std::string& name) {
  constexpr std::string_view kForms[] = {".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf"};
  return std::any_of(std::begin(kForms), std::end(kForms), [&](std::string_view form) {
    return name.ends_with(form) || name.ends_with(std::string(form) + ".index.json");
  });
}

/// Copies a config.json. If the model has its own head, the copy also says that embeddings are not tied,
/// because not all readers notice the stored head.
void copy_config(const fs::path& from, const fs::path& to, bool is_tied) {
  std::string text = read_text_file(from.string());
  if (!is_tied) {
    static const std::regex kTied("(\"tie_word_embeddings\"\\s*:\\s*)true");
    text = std::regex_replace(text, kTied, "$1false");
    // InternVL's class ties embeddings by default.
    if (text.find("\"tie_word_embeddings\"") == std::string::npos &&
        text.find("\"internvl\"") != std::string::npos)
      text.insert(text.find('{') + 1, "\n  \"tie_word_embeddings\": false,");
  }
  write_file_atomically(to.string(), text);
}

void copy_other_files(const fs::path& from, const fs::path& to, bool is_tied) {
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(from, problem)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || is_of_weights(name)) continue;
    if (name == "config.json") {
      copy_config(entry.path(), to / name, is_tied);
      continue;
    }
    fs::copy_file(entry.path(), to / name, problem);
    if (problem) refuse_output((to / name).string(), problem.message());
  }
  if (problem) refuse_input(from.string(), "{}", problem.message());
}

}  // namespace

void write_model_folder(const ModelSpec& model, const CheckpointReader& weights, const std::string& from,
                        const std::string& to, std::uint64_t most_file_bytes) {
  const std::optional<WeightsFolder> source = open_weights(from);
  const WeightsFolder* first = source ? &*source : nullptr;
  const std::vector<WrittenTensor> tensors =
      tensors_to_write(names_in(model, from, first), model, weights.index(), first);
  std::vector<TensorShape> shapes;
  for (const WrittenTensor& tensor : tensors) shapes.push_back(tensor.shape);
  WeightsWriter writer(to, shapes, {.sync = true}, most_file_bytes);
  const bool is_f64 = weights.index().dtype == Dtype::f64;
  for (const WrittenTensor& tensor : tensors) {
    if (tensor.trained == nullptr) {
      copy_tensor(*source, tensor.shape.name, writer);
    } else if (is_f64) {
      write_trained<double>(weights, tensor, writer);
    } else {
      write_trained<float>(weights, tensor, writer);
    }
  }
  writer.finish();
  copy_other_files(from, to, model.llm.tied_embeddings);
}

}  // namespace dflop
