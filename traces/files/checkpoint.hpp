// Checkpoints of live training: the state of a run in one file.
//
// A file is, little endian and without gaps:
//
//     8 bytes   "DFLOPCKP"
//     4 bytes   version of this layout, 1
//     4 bytes   CRC-32 of the first 32 bytes, with zeros in place of this number, and the header
//     8 bytes   bytes of the header
//     8 bytes   bytes of the file
//     header    JSON, "dflop.checkpoint", version 1; lists the tensors, each with its place and CRC-32
//     values    of the tensors, one after the other, row by row
//
// So no byte can change, and none be lost, without the reader's notice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// What a tensor is to the optimizer: a weight, or Adam's running mean of its gradient or of the square of
/// it.
enum class TensorKind : std::uint8_t { weight, moment1, moment2 };

/// How a number is stored.
enum class ElementType : std::uint8_t { f32, f64 };

std::string_view to_string(TensorKind kind);
std::string_view to_string(ElementType element);

/// A whole tensor, gathered from the ranks that hold parts of it.
struct NamedTensor {
  std::string name;
  TensorKind kind = TensorKind::weight;
  ElementType element = ElementType::f32;  ///< of the file; `values` of f32 each hold a float
  std::int64_t rows = 0;                   ///< at least 1, as columns
  std::int64_t columns = 0;
  std::vector<double> values;  ///< rows x columns, row by row; NaN and infinity are allowed

  bool operator==(const NamedTensor&) const = default;
};

/// All that training needs to go on as if it had never stopped, and to notice that it would not. Strings are
/// UTF-8; bytes that are not come back as U+FFFD.
struct Checkpoint {
  std::string model;       ///< name
  std::string model_spec;  ///< what makes it that model: its JSON, or a fingerprint of that
  std::int64_t step = 0;   ///< optimizer steps that are done
  std::uint64_t seed = 0;
  ElementType dtype = ElementType::f32;  ///< that training computes in
  int gbs = 1;                           ///< global batch size, samples a step
  std::string scheduler;
  std::string data_file;
  std::string data_fingerprint;
  std::int64_t samples_drawn = 0;
  std::string plan;                  ///< a description
  std::vector<NamedTensor> tensors;  ///< one at most of each kind and name

  bool operator==(const Checkpoint&) const = default;
};

/// The bytes of a checkpoint file.
/// @throws Error (internal) for what could not be read back: a tensor with another number of values than its
/// shape says, one that stands twice, an f32 tensor with a value that is no float, negative counts.
std::string to_bytes(const Checkpoint& checkpoint);

/// Reads back to the last bit. `file` is the bytes' place for errors. Sizes are held against the bytes that
/// are there before memory is taken for them.
/// @throws Error (input) for bytes that are no checkpoint, one of another version, or one that is cut short
/// or damaged anywhere.
Checkpoint parse_checkpoint(std::string_view bytes, const std::string& file);

/// Writes a file that is complete or not there, and returns when it is on the disk. What is cut off by a
/// power failure before that may have the final name, and read_checkpoint() refuses it.
/// @throws Error (output) with the path and the system's reason, or for a path that ends in ".gz"; as
/// to_bytes().
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

/// @throws Error (input) for a file that cannot be read; as parse_checkpoint().
Checkpoint read_checkpoint(const std::string& path);

}  // namespace dflop
