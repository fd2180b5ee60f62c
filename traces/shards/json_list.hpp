// A JsonList is a list of training samples as other trainers store it: one JSON object a line (JSON Lines),
// or a JSON array of objects. It finds all samples in one pass, without parsing them, and can then read them
// in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dflop {

/// A JsonExtent says where a sample's JSON is in the file.
struct JsonExtent {
  std::uint64_t offset = 0;
  std::uint32_t size = 0;  ///< in bytes
  std::uint32_t line = 0;  ///< in which the sample begins, from 1

  bool operator==(const JsonExtent&) const = default;
};

/// Several threads may read a JsonList at once. It keeps no file open, and no bytes of the file in memory.
class JsonList {
 public:
  /// Finds the samples. The first character of the file says whether it is an array. Lines that have only
  /// spaces are skipped.
  /// @throws Error (input) with file and element for an array that has no end, an empty element or text after
  /// the array; for a sample of more than 256 MiB, more than 20,000,000 samples, and a file that is packed
  /// with gzip or cannot be read
  explicit JsonList(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_array() const { return is_array_; }
  std::size_t size() const { return extents_.size(); }
  const JsonExtent& extent(std::size_t sample) const { return extents_[sample]; }

  /// Returns a sample's number in the list: of its line, from 1, or of its element in an array, from 0.
  std::size_t number(std::size_t sample) const { return is_array_ ? sample : extents_[sample].line; }
  /// Returns the place of a sample for errors: "list.jsonl: line 17", "list.json: element 4 (line 17)" or, in
  /// the first line of an array, "list.json: element 4". Elements count from 0.
  std::string place(std::size_t sample) const;
  /// Returns a sample's JSON. @throws Error (input) if the file cannot be read that far
  std::string read(std::size_t sample) const;

  /// Returns a hash of all bytes of the file.
  std::uint64_t hash() const { return hash_; }

 private:
  std::string path_;
  bool is_array_ = false;
  std::vector<JsonExtent> extents_;
  std::uint64_t hash_ = 0;
};

}  // namespace dflop
