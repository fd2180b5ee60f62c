#include "traces/weights/folder.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/refuse.hpp"
#include "core/support/did_you_mean.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

std::string in_folder(const std::string& folder, std::string_view file) {
  return (fs::path(folder) / file).string();
}

/// Returns the names of a folder's files, sorted. @throws Error (input)
std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> files;
  try {
    for (const auto& entry : fs::directory_iterator(folder))
      files.push_back(entry.path().filename().string());
  } catch (const fs::filesystem_error& error) {
    refuse_input(folder, "expected a folder with a model's weights, found: {}", error.code().message());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns the first name that has one of the endings, or nothing.
std::optional<std::string> first_ending(const std::vector<std::string>& files,
                                        std::initializer_list<std::string_view> endings) {
  for (const std::string& file : files) {
    for (const std::string_view ending : endings) {
      if (file.ends_with(ending)) return file;
    }
  }
  return std::nullopt;
}

[[noreturn]] void refuse_folder(const std::string& folder, const std::vector<std::string>& files) {
  if (const auto other = first_ending(files, {".safetensors"})) {
    refuse_input(folder, "expected {} or {}, found only {}, and no index that lists it", kWeightsFile,
                 kWeightsIndex, *other);
  }
  if (const auto pickle = first_ending(files, {".bin", ".bin.index.json", ".pt", ".pth"})) {
    refuse_input(folder,
                 "expected {} or {}, found {}, a pickle of PyTorch: such files can run code when they are "
                 "read, so they are not read. Save the model as safetensors, as save_pretrained() does",
                 kWeightsFile, kWeightsIndex, *pickle);
  }
  refuse_input(folder, "expected a model's weights, {} or {}, found neither", kWeightsFile, kWeightsIndex);
}

}  // namespace

WeightMap parse_weight_map(std::string_view text, const std::string& file) {
  const JsonDocument document(text, file);
  const JsonValue root = document.root();
  root.require_keys({"weight_map"}, {"metadata"});
  if (root.has("metadata")) root.at("metadata").require_object();
  WeightMap weights;
  for (const auto& [name, json] : root.at("weight_map").members()) {
    const std::string& shard = json.string();
    // A name with "/" or ".." could refer to any file of the machine.
    if (shard.empty() || shard == "." || shard.find("..") != std::string::npos ||
        shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      json.refuse_type("the name of a file in the same folder");
    }
    weights.emplace(name, shard);
  }
  return weights;
}

namespace {

/// Returns {name: file}, one a line. A JsonWriter would treat a tensor without a name as an array element.
std::string files_text(const WeightMap& weights) {
  std::string text = "{";
  for (const auto& [name, file] : weights) {
    text += text.size() > 1 ? ",\n    " : "\n    ";
    append_json_string(text, name);
    text += ": ";
    append_json_string(text, file);
  }
  return text + "\n  }";
}

}  // namespace

std::string weight_map_text(const WeightMap& weights, std::uint64_t total_bytes) {
  JsonWriter writer;
  writer.begin_object("metadata");
  writer.field("total_size", total_bytes);
  writer.end_object();
  writer.raw("weight_map", files_text(weights));
  return writer.finish();
}

WeightsFolder::WeightsFolder(const std::string& folder) : folder_(folder) {
  const std::vector<std::string> files = list_files(folder);
  const auto has = [&](std::string_view file) {
    return std::binary_search(files.begin(), files.end(), file);
  };
  if (has(kWeightsFile)) {
    const std::string name(kWeightsFile);
    auto file = std::make_unique<SafetensorsFile>(in_folder(folder, name));
    for (const StoredTensor& tensor : file->tensors()) weights_.emplace(tensor.name, name);
    files_.emplace(name, std::move(file));
    has_both_ = has(kWeightsIndex);
  } else if (has(kWeightsIndex)) {
    const std::string path = in_folder(folder, kWeightsIndex);
    weights_ = parse_weight_map(read_text_file(path, kLongestHeader), path);
  } else {
    refuse_folder(folder, files);
  }
}

std::vector<std::string> WeightsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : weights_) names.push_back(name);
  return names;
}

void WeightsFolder::open_all() const {
  std::set<std::string_view> files;
  for (const auto& [name, file] : weights_) {
    if (files.insert(file).second) open(file);
  }
}

std::optional<Weight> WeightsFolder::find(std::string_view name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) return std::nullopt;
  const SafetensorsFile& file = open(found->second);
  return Weight{&file, file.find(name)};
}

Weight WeightsFolder::at(std::string_view name) const {
  if (const auto weight = find(name)) return *weight;
  std::vector<std::string_view> known;
  for (const auto& [tensor, file] : weights_) known.emplace_back(tensor);
  refuse_input(folder_, "expected weights of a tensor '{}', found none of this name among {}{}{}", name,
               known.size(), did_you_mean(name, known), hint_of_both());
}

std::string WeightsFolder::hint_of_both() const {
  if (!has_both_) return "";
  return fmt::format(
      "; only {} is read, as in transformers, although there is also {}: if the former is stale, remove it",
      kWeightsFile, kWeightsIndex);
}

const SafetensorsFile& WeightsFolder::open(const std::string& file) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(file);
  if (found != files_.end()) return *found->second;
  const std::string path = in_folder(folder_, file);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    refuse_input(
        in_folder(folder_, kWeightsIndex),
        "expected the file {} next to it, which has tensors of the model, found none; is the download "
        "complete?",
        file);
  }
  auto shard = std::make_unique<SafetensorsFile>(path);
  check_against_index(*shard, file);
  return *files_.emplace(file, std::move(shard)).first->second;
}

/// Rejects a file that lacks a tensor of the index, or has one that the index assigns to another file. A
/// tensor that the index does not name is not a weight of the model.
void WeightsFolder::check_against_index(const SafetensorsFile& shard, const std::string& file) const {
  for (const auto& [name, owner] : weights_) {
    if (owner == file && shard.find(name) == nullptr) {
      refuse_input(shard.path(), "expected the tensor '{}', as {} says, found none of this name", name,
                   kWeightsIndex);
    }
  }
  for (const StoredTensor& tensor : shard.tensors()) {
    const auto found = weights_.find(tensor.name);
    if (found == weights_.end() || found->second == file) continue;
    refuse_input(fmt::format("{}: tensor '{}'", shard.path(), tensor.name),
                 "expected it only in {}, as {} says, found it here, too", found->second, kWeightsIndex);
  }
}

}  // namespace dflop
