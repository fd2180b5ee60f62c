// A WeightsFolder is a model's weights as Hugging Face keeps them: one file, or several with an index of
// them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/weights/safetensors.hpp"

namespace dflop {

/// The file that holds all weights, where they are in one.
inline constexpr std::string_view kWeightsFile = "model.safetensors";
/// The file that says which of several files holds which tensor.
inline constexpr std::string_view kWeightsIndex = "model.safetensors.index.json";

/// The file of each tensor, by the tensor's name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// Reads an index: {"metadata": {...}, "weight_map": {tensor: file}}. What the metadata say is not used, as
/// sizes in published models are at times wrong.
/// @throws Error (input) with `file` and key, also for a file of another folder.
WeightMap parse_weight_map(std::string_view text, const std::string& file);

/// Returns the text of an index. `total_bytes` are those of all tensors.
std::string weight_map_text(const WeightMap& weights, std::uint64_t total_bytes);

/// A Weight is a tensor and the file that it is in.
struct Weight {
  const SafetensorsFile* file = nullptr;
  const StoredTensor* tensor = nullptr;
};

/// WeightsFolders may be read by several threads at once. Of weights in one file and in several the one file
/// counts, as where the models' own library reads them.
class WeightsFolder {
 public:
  /// Opens the one file, or reads the index: its files are opened when they are needed.
  /// @throws Error (input) if the folder has no weights, or only such as run code when they are read
  /// (PyTorch's pickles); as SafetensorsFile, parse_weight_map()
  explicit WeightsFolder(const std::string& folder);

  const std::string& path() const { return folder_; }
  /// Returns the names of all tensors, sorted.
  std::vector<std::string> names() const;

  /// Opens all files, so that what is wrong with any is known at once. @throws as find()
  void open_all() const;

  /// Returns the tensor of a name, or nothing; it lives as long as the folder. Opens the file that has it.
  /// @throws Error (input) for a file that is not there or lacks a tensor of the index, or that has one which
  /// the index gives to another file; as SafetensorsFile
  std::optional<Weight> find(std::string_view name) const;

  /// Returns the tensor of a name. @throws Error (input) where there is none; as find()
  Weight at(std::string_view name) const;

 private:
  const SafetensorsFile& open(const std::string& file) const;
  void check_against_index(const SafetensorsFile& shard, const std::string& file) const;

  std::string folder_;
  WeightMap weights_;
  mutable std::mutex mutex_;  // guards files_
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>, std::less<>> files_;
};

}  // namespace dflop
