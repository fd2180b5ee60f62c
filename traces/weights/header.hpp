// The header of a safetensors file says which tensors it holds, and where. The file is:
//
//     8 bytes   bytes of the header, little endian
//     header    JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {key: text}},
//               with spaces behind it
//     data      of the tensors, row by row, without gaps; offsets count from here
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/weights/dtype.hpp"

namespace dflop {

/// A header has at most so many bytes, as in the format's own library: a guard against files of other kinds.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;

/// A TensorShape is what a tensor is before it has a place in a file.
struct TensorShape {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;  ///< the slowest dimension first; empty for a single number

  bool operator==(const TensorShape&) const = default;
};

/// A StoredTensor is a tensor of a file. It is seen as a matrix, too: a shape [r, ...] is r rows of as many
/// columns as the product of the others, a vector and a single number are one row.
struct StoredTensor : TensorShape {
  std::uint64_t begin = 0;  ///< the first of its bytes, from the beginning of the file
  std::uint64_t bytes = 0;
  std::int64_t rows = 1;
  std::int64_t columns = 1;

  bool operator==(const StoredTensor&) const = default;
};

/// Texts that a file carries beside its tensors, as {"format": "pt"}.
using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  ///< in the order of their data
  Metadata metadata;
  std::uint64_t data_begin = 0;  ///< from the beginning of the file
  std::uint64_t file_bytes = 0;
};

/// Reads a header. `beginning` is the file's beginning, of which the header has to be a part if the file of
/// `file_bytes` has it. Memory is taken in proportion to the header's bytes.
/// @throws Error (input) with `file`, the tensor and its place for anything that the format does not allow:
/// a header that is longer than the file or kLongestHeader, not UTF-8 or no JSON object; a name that stands
/// twice; shapes whose bytes are not those of the offsets, or whose sizes overflow; data that overlap, leave
/// holes, or have another length than the file has left.
SafetensorsHeader parse_header(std::string_view beginning, std::uint64_t file_bytes, const std::string& file);

/// Lays out tensors one after the other, and returns where they are. The header that says so is
/// header_bytes().
/// @throws Error (internal) for names that stand twice, are empty, "__metadata__" or not UTF-8; for negative
/// or overflowing sizes; and for a tensor whose data would not be aligned to its numbers, which other readers
/// need: sort wider dtypes before narrower ones.
SafetensorsHeader lay_out(std::span<const TensorShape> tensors, const Metadata& metadata);

/// Returns the bytes of a tensor's data. @throws Error (internal) as lay_out() for its shape
std::uint64_t stored_bytes(const TensorShape& tensor);

/// Returns the bytes of a file before its data: the length, and the header with spaces up to a multiple of 8.
std::string header_bytes(const SafetensorsHeader& header);

}  // namespace dflop
