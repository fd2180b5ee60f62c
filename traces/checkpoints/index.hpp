// The index of a checkpoint says which pieces of which tensors each file in its folder holds.
//
//     step-00000050/
//         rank-00000.safetensors   the values that rank 0 wrote
//         rank-00003.safetensors
//         checkpoint.json          the index, "dflop.checkpoint", version 2
//
// The index ends with the CRC-32 of its preceding text, and contains the CRC-32 of each file. So the reader
// detects any changed or lost byte.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint.hpp"
#include "traces/weights/dtype.hpp"

namespace dflop {

inline constexpr std::string_view kCheckpointIndex = "checkpoint.json";

/// An IndexRun is a range of consecutive rows, columns or values: [begin, end).
struct IndexRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  auto operator<=>(const IndexRun&) const = default;
};

/// A TensorBlock is a part of a matrix: runs of its rows, in this order, and one run of its columns. Its
/// values are numbered row by row.
struct TensorBlock {
  std::vector<IndexRun> rows;
  IndexRun columns;

  std::int64_t held_rows() const;
  std::int64_t values() const { return held_rows() * columns.size(); }
  auto operator<=>(const TensorBlock&) const = default;
};

/// A TensorPiece is the part of a tensor that one file holds: consecutive values of a block. It is the whole
/// block unless the ranks that hold the same block each keep a shard of it.
struct TensorPiece {
  std::size_t file = 0;  ///< index in CheckpointIndex::files
  std::string name;      ///< the piece's name in the file
  TensorBlock block;
  IndexRun values;  ///< range of the block's values

  bool operator==(const TensorPiece&) const = default;
};

/// A PiecedTensor is a whole tensor, divided into pieces. Each value is in exactly one piece.
struct PiecedTensor {
  std::string name;
  TensorKind kind = TensorKind::weight;
  std::int64_t rows = 0;  ///< at least 1, like columns
  std::int64_t columns = 0;
  std::vector<TensorPiece> pieces;

  bool operator==(const PiecedTensor&) const = default;
};

struct CheckpointFile {
  std::string name;  ///< name in the checkpoint's folder
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;

  bool operator==(const CheckpointFile&) const = default;
};

/// A CheckpointIndex holds everything, except the values of tensors, that training needs to resume exactly,
/// or to detect that it cannot.
struct CheckpointIndex : RunIdentity {
  std::int64_t step = 0;     ///< completed optimizer steps
  Dtype dtype = Dtype::f32;  ///< the type in which training computes
  std::string scheduler;
  std::int64_t samples_drawn = 0;
  std::string plan;                              ///< description of the plan
  std::map<std::string, std::string> optimizer;  ///< option values by name; empty: unknown
  std::string kernels;  ///< the state of kernel selection, as JSON text; may be empty
  /// "any" if a GPU added the sums of attention in no fixed order, so that repeated steps may differ; else
  /// empty.
  std::string attention_sums;
  std::vector<CheckpointFile> files;
  std::vector<PiecedTensor> tensors;  ///< at most one for each kind and name

  /// Returns the tensor of this kind and name; null if there is none.
  const PiecedTensor* find(TensorKind kind, std::string_view name) const;

  bool operator==(const CheckpointIndex&) const = default;
};

/// A HeldPart is a part of a tensor that a rank holds and could write.
struct HeldPart {
  std::string tensor;
  TensorKind kind = TensorKind::weight;
  std::int64_t rows = 0;  ///< rows of the whole tensor; `columns` likewise
  std::int64_t columns = 0;
  TensorBlock block;
  IndexRun values;  ///< range of the block's values; empty for a rank whose shard has none
  int rank = 0;
  int stage = 0;    ///< the stage for which the rank holds the part
  int tp_rank = 0;  ///< rank in the stage's tp group
};

/// Divides tensors among the files of the ranks, so that each value is written once, even if several ranks
/// hold it. Sets the index's `files`, without sizes, and `tensors`. If several stages or tp ranks hold copies
/// of a block, the first tp rank of the first stage writes it. If several ranks still hold equal parts, the
/// first of them writes.
/// @throws Error (internal) naming a tensor whose shape differs between ranks, or of which a value would be
/// written never or twice.
void divide_among_files(std::span<const HeldPart> parts, CheckpointIndex& index);

/// Returns the name of a rank's file, "rank-00003.safetensors".
std::string rank_file_name(int rank);

/// Returns an index as text. Strings are written as UTF-8; invalid bytes become U+FFFD.
std::string to_json(const CheckpointIndex& index);

/// Reads an index. @throws Error (input) with `file` and key if the version is newer, if the index is
/// damaged, or if a value of a tensor is in no piece or in two pieces.
CheckpointIndex parse_checkpoint_index(std::string_view text, const std::string& file);

}  // namespace dflop
