// A MegatronFile is a Megatron indexed data set: a .bin with the token ids of many sequences, and an .idx
// with the position of each.
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

/// A MegatronFile may be read by several threads at once. It keeps no file open, because there may be
/// thousands.
class MegatronFile {
 public:
  /// Opens both files and checks the whole index against the size of the .bin, without reading the .bin. An
  /// index of a data set made with multimodal=True ends with a byte per sequence, its mode, which is ignored.
  /// @param prefix      the path without .idx and .bin
  /// @param vocabulary  ids must be below it; they are checked when they are read
  /// @throws Error (input) with file and offset if ids have neither 32 bits nor 16 bits unsigned, or if the
  /// sequences have more ids in total than the .bin; what Mapping throws
  explicit MegatronFile(const std::string& prefix, std::int64_t vocabulary = std::int64_t{1} << 31);

  const std::string& index_path() const { return index_path_; }
  /// Returns the bytes of the .idx.
  std::string_view index_bytes() const;

  std::size_t size() const { return sequences_; }
  /// Tells whether the index has modes of sequences.
  bool has_modes() const { return has_modes_; }

  /// Returns the number of tokens of a sequence. @pre sequence < size()
  std::size_t length(std::size_t sequence) const;

  /// Returns the tokens of a sequence. @pre sequence < size()
  /// @throws Error (input) with the .bin's path and the offset of an id that is negative or outside the
  /// vocabulary
  std::vector<std::int32_t> read(std::size_t sequence) const;
  /// Reads ids.size() tokens of a sequence, starting at its token `begin`. @pre the tokens are within the
  /// sequence
  void read(std::size_t sequence, std::size_t begin, std::span<std::int32_t> ids) const;

  /// Returns a token's place for errors, "file.bin: offset N". @pre it is within the sequence
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
  bool has_modes_ = false;
};

}  // namespace dflop
