// A WeightsFolder holds a model's weights in Hugging Face's layout: one safetensors file, or several with an
// index.
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

/// This file holds all weights, if there is only one file.
inline constexpr std::string_view kWeightsFile = "model.safetensors";
/// This file says which of several files holds which tensor.
inline constexpr std::string_view kWeightsIndex = "model.safetensors.index.json";

/// A WeightMap gives the file of each tensor, by the tensor's name.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// Reads an index: {"metadata": {...}, "weight_map": {tensor: file}}. The metadata are ignored, because sizes
/// in published models are sometimes wrong.
/// @throws Error (input) with `file` and key, also for a file outside the index's folder.
WeightMap parse_weight_map(std::string_view text, const std::string& file);

/// Returns the text of an index. `total_bytes` is the sum over all tensors.
std::string weight_map_text(const WeightMap& weights, std::uint64_t total_bytes);

/// A Weight is a tensor together with its file.
struct Weight {
  const SafetensorsFile* file = nullptr;
  const StoredTensor* tensor = nullptr;
};

/// A WeightsFolder reads the weights in a folder. Several threads may use it at once. If a folder has both
/// kWeightsFile and kWeightsIndex, only kWeightsFile is read, as in transformers.
class WeightsFolder {
 public:
  /// Opens kWeightsFile, or reads kWeightsIndex and opens the files that it names on first use.
  /// @throws Error (input) if the folder has no weights, or only formats that run code when they are read
  /// (PyTorch's pickles); what SafetensorsFile and parse_weight_map() throw
  explicit WeightsFolder(const std::string& folder);

  const std::string& path() const { return folder_; }
  /// Returns the names of all tensors, sorted.
  std::vector<std::string> names() const;

  /// Returns the end of errors about missing or unfitting tensors: if the folder has both kWeightsFile and
  /// kWeightsIndex, that one of them may be stale; else "".
  std::string hint_of_both() const;

  /// Opens all files, so that errors show up early. @throws what find() throws
  void open_all() const;

  /// Opens the file of the named tensor and returns the tensor, which lives as long as this object; nullopt
  /// if there is no such tensor.
  /// @throws Error (input) for a missing file, a file that lacks a tensor of the index, or one with a tensor
  /// that the index assigns to a different file; what SafetensorsFile throws
  std::optional<Weight> find(std::string_view name) const;

  /// Returns a tensor by name. @throws Error (input) if there is none; what find() throws
  Weight at(std::string_view name) const;

 private:
  const SafetensorsFile& open(const std::string& file) const;
  void check_against_index(const SafetensorsFile& shard, const std::string& file) const;

  std::string folder_;
  bool has_both_ = false;  ///< kWeightsFile, which is read, and kWeightsIndex
  WeightMap weights_;
  mutable std::mutex mutex_;  // guards files_
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>, std::less<>> files_;
};

}  // namespace dflop
