// The header of a safetensors file lists its tensors and their positions. The file consists of:
//
//     8 bytes   size of the header in bytes, little endian
//     header    JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {key: text}},
//               padded with spaces
//     data      the tensors, row by row, without gaps; offsets count from here
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/weights/dtype.hpp"

namespace dflop {

/// A header has at most this many bytes, as in the format's own library. A larger value indicates that the
/// file is not a safetensors file.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;

/// A TensorShape is a tensor's name, type and shape, before it has a place in a file.
struct TensorShape {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;  ///< slowest dimension first; empty for a single number

  bool operator==(const TensorShape&) const = default;
};

/// A StoredTensor is a tensor in a file. It can also be viewed as a matrix: a shape [r, ...] has r rows, and
/// the product of the other sizes as columns; a vector or a single number is one row.
struct StoredTensor : TensorShape {
  std::uint64_t begin = 0;  ///< offset of its first byte in the file
  std::uint64_t bytes = 0;
  std::int64_t rows = 1;
  std::int64_t columns = 1;

  bool operator==(const StoredTensor&) const = default;
};

/// Metadata are texts that a file carries in addition to its tensors, such as {"format": "pt"}.
using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< in the order of their data
  Metadata metadata;
  std::uint64_t data_begin = 0;  ///< offset in the file
  std::uint64_t file_bytes = 0;
};

/// Reads a header. `beginning` is the start of a file of `file_bytes` bytes. It must contain the whole
/// header, unless the file itself ends within the header. Memory use is proportional to the header's size.
/// @throws Error (input) with `file`, the tensor and its place for anything that the format does not allow: a
/// header that is longer than the file or kLongestHeader, is not UTF-8 or not a JSON object; a repeated name;
/// shapes whose bytes do not match the offsets, or whose sizes overflow; data that overlap, leave gaps, or do
/// not fill the rest of the file.
SafetensorsHeader parse_header(std::string_view beginning, std::uint64_t file_bytes, const std::string& file);

/// Lays out tensors one after the other, and returns their positions. header_bytes() returns the header.
/// @throws Error (internal) for names that are repeated, empty, "__metadata__" or not UTF-8; for negative or
/// overflowing sizes; and for a tensor whose data would not be aligned to its numbers, as other readers
/// require: sort wider dtypes before narrower ones.
SafetensorsHeader lay_out(std::span<const TensorShape> tensors, const Metadata& metadata);

/// Returns the size of a tensor's data in bytes. @throws Error (internal) for negative or overflowing sizes
std::uint64_t stored_bytes(const TensorShape& tensor);

/// Returns the bytes of a file before its data: the header's size, and the header padded with spaces to a
/// multiple of 8.
std::string header_bytes(const SafetensorsHeader& header);

}  // namespace dflop
