// A MegatronFile is a Megatron indexed data set: token ids of many sequences in a .bin, and in an .idx where
// each of them lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/text/readable_file.hpp"
#include "traces/weights/safetensors.hpp"

namespace dflop {

/// MegatronFiles may be read by several threads at once. They hold no file open: there may be thousands of
/// them.
class MegatronFile {
 public:
  /// Opens both files and checks the whole index against the size of the .bin, of which nothing is read.
  /// @param prefix      the paths without .idx and .bin
  /// @param vocabulary  ids are below it, which is checked as they are read
  /// @throws Error (input) with file and offset, as Mapping does, for ids but of 16 bits unsigned and 32
  /// bits, and for sequences that have more ids together than the .bin
  explicit MegatronFile(const std::string& prefix, std::int64_t vocabulary = std::int64_t{1} << 31);

  const std::string& index_path() const { return index_path_; }
  /// Returns the bytes of the .idx.
  std::string_view index_bytes() const;

  std::size_t size() const { return sequences_; }

  /// Returns the number of tokens of a sequence. @pre sequence < size()
  std::size_t length(std::size_t sequence) const;

  /// Returns the tokens of a sequence. @pre sequence < size()
  /// @throws Error (input) with the .bin and offset for an id that is negative or not in the vocabulary
  std::vector<std::int32_t> read(std::size_t sequence) const;
  /// Does so with those from `begin` on, as many as `ids` has. @pre they are within the sequence
  void read(std::size_t sequence, std::size_t begin, std::span<std::int32_t> ids) const;

  /// Returns "file.bin: offset N" of a token, for errors. @pre it is within the sequence
  std::string place_of(std::size_t sequence, std::size_t token) const;

 private:
  std::size_t offset_of(std::size_t sequence, std::size_t token) const;
  void check_sequences() const;
  void check_documents(std::size_t documents) const;

  std::string index_path_;
  std::string data_path_;
  std::int64_t vocabulary_;
  Mapping index_;
  std::size_t data_bytes_ = 0;
  std::size_t sequences_ = 0;
  std::size_t id_bytes_ = 0;
};

}  // namespace dflop
