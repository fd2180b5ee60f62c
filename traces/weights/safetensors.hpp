// A SafetensorsFile reads blocks of the tensors in a file without loading the whole file into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/text/readable_file.hpp"
#include "traces/weights/header.hpp"

namespace dflop {

/// A Block is a part of a tensor viewed as a matrix (StoredTensor): the rows and columns from begin up to,
/// but excluding, end.
struct Block {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t column_begin = 0;
  std::int64_t column_end = 0;

  std::int64_t rows() const { return row_end - row_begin; }
  std::int64_t columns() const { return column_end - column_begin; }
};

/// Returns the block that covers the whole tensor.
inline Block whole(const StoredTensor& tensor) {
  return {0, tensor.rows, 0, tensor.columns};
}

/// A Mapping is a file mapped into memory for reading. Pages are loaded from disk on access. If the file
/// becomes shorter in the meantime, an access ends the process (SIGBUS). So weights must be replaced by
/// renaming, as StagedFile does, not in place.
class Mapping {
 public:
  /// Maps a file, which may be closed afterwards. @throws Error (input) if it cannot be mapped
  explicit Mapping(const ReadableFile& file);
  /// Opens and maps a file. @throws Error (input) if it cannot be mapped; what ReadableFile throws
  explicit Mapping(const std::string& path) : Mapping(ReadableFile(path)) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Releases all memory pages that overlap with a range. They are loaded again on the next access, most
  /// likely from the system's cache.
  void drop(std::size_t begin, std::size_t size) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A SafetensorsFile is a mapped file of tensors. Several threads may read it at once.
class SafetensorsFile {
 public:
  /// Maps a file and reads its header. @throws what Mapping and parse_header() throw
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Returns all tensors, in the order of their data.
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }

  /// Returns a tensor by name; null if there is none.
  const StoredTensor* find(std::string_view name) const;

  /// Returns a tensor by name. @throws Error (input) if there is none
  const StoredTensor& at(std::string_view name) const;

  /// Returns the bytes of a tensor of this file, which may not be aligned to its numbers. Accessed pages stay
  /// in memory until drop_pages().
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  void drop_pages(const StoredTensor& tensor) const;

  /// Calls visit(bytes, numbers) for a block's numbers, row by row, a few MiB at a time. The bytes are valid
  /// until `visit` returns. Meanwhile, another thread reads the next bytes.
  /// @param tensor  one of this file, F64, F32, F16 or BF16
  /// @throws Error (input) with the file and tensor for other dtypes, and for a block outside the tensor
  void visit_block(const StoredTensor& tensor, const Block& block,
                   const std::function<void(const std::byte* bytes, std::size_t numbers)>& visit) const;
  /// Converts the numbers of a block with decode() and writes them to `out`, row by row.
  /// @param out  as many numbers as the block has
  /// @throws what visit_block() throws; Error (internal) for a wrong size of `out`
  void read_block(const StoredTensor& tensor, const Block& block, std::span<float> out) const;
  void read_block(const StoredTensor& tensor, const Block& block, std::span<double> out) const;

 private:
  template <typename Real>
  void read(const StoredTensor& tensor, const Block& block, std::span<Real> out) const;
  void check_block(const StoredTensor& tensor, const Block& block) const;

  ReadableFile file_;
  Mapping mapping_;
  SafetensorsHeader header_;
  std::map<std::string_view, const StoredTensor*> by_name_;
};

}  // namespace dflop
