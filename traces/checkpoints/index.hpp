// The index of a checkpoint says what the files of its folder hold: which pieces of which tensors.
//
//     step-00000050/
//         rank-00000.safetensors   what rank 0 held, and so on
//         rank-00003.safetensors
//         checkpoint.json          the index, "dflop.checkpoint", version 2
//
// The index ends with the CRC-32 of its own text before that number, and has that of each file. So no byte of
// a checkpoint can change, and none be lost, without the reader's notice.
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

/// An IndexRun has rows, columns or values that follow each other: [begin, end).
struct IndexRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  auto operator<=>(const IndexRun&) const = default;
};

/// A TensorBlock is a part of a matrix: runs of its rows, in this order, and one run of its columns. Its
/// values count row by row.
struct TensorBlock {
  std::vector<IndexRun> rows;
  IndexRun columns;

  std::int64_t held_rows() const;
  std::int64_t values() const { return held_rows() * columns.size(); }
  auto operator<=>(const TensorBlock&) const = default;
};

/// A TensorPiece is what a file holds of a tensor: some values of a block, one after the other. They are all
/// of them but where ranks that hold the same block have a shard of it each.
struct TensorPiece {
  std::size_t file = 0;  ///< of CheckpointIndex::files
  std::string name;      ///< in the file
  TensorBlock block;
  IndexRun values;  ///< of the block

  bool operator==(const TensorPiece&) const = default;
};

/// A PiecedTensor is a whole tensor, each value of which is in one piece.
struct PiecedTensor {
  std::string name;
  TensorKind kind = TensorKind::weight;
  std::int64_t rows = 0;  ///< at least 1, as columns
  std::int64_t columns = 0;
  std::vector<TensorPiece> pieces;

  bool operator==(const PiecedTensor&) const = default;
};

struct CheckpointFile {
  std::string name;  ///< in the checkpoint's folder
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;

  bool operator==(const CheckpointFile&) const = default;
};

/// A CheckpointIndex has all that training needs to go on as if it had never stopped, and to notice that it
/// would not, but for the values of tensors.
struct CheckpointIndex : RunIdentity {
  std::int64_t step = 0;     ///< optimizer steps that are done
  Dtype dtype = Dtype::f32;  ///< that training computes in
  std::string scheduler;
  std::int64_t samples_drawn = 0;
  std::string plan;                              ///< a description
  std::map<std::string, std::string> optimizer;  ///< values of its options by their names; empty: unknown
  std::string kernels;  ///< what choosing kernels has learned, as JSON text; empty for nothing
  /// This is in which order a GPU took the sums of attention, where it was no fixed one: "any". Steps that
  /// are run again may then differ.
  std::string attention_sums;
  std::vector<CheckpointFile> files;
  std::vector<PiecedTensor> tensors;  ///< one at most of each kind and name

  /// Returns the tensor, or null.
  const PiecedTensor* find(TensorKind kind, std::string_view name) const;

  bool operator==(const CheckpointIndex&) const = default;
};

/// A HeldPart is what a rank holds of a tensor and could write.
struct HeldPart {
  std::string tensor;
  TensorKind kind = TensorKind::weight;
  std::int64_t rows = 0;  ///< of the whole tensor, as columns
  std::int64_t columns = 0;
  TensorBlock block;
  IndexRun values;  ///< of the block; empty for a rank whose shard has none of it
  int rank = 0;
  int stage = 0;    ///< of which the rank holds it
  int tp_rank = 0;  ///< in the stage
};

/// Divides tensors among the files of those ranks that have to write something: each value is written once,
/// whoever else holds it. Sets `files`, without sizes, and `tensors` of the index.
/// Copies of a block on several tp ranks or stages are those of the first stage and its first tp rank that
/// hold it; equal parts are the first rank's.
/// @throws Error (internal) naming a tensor of which ranks hold different shapes, or not each value once.
void divide_among_files(std::span<const HeldPart> parts, CheckpointIndex& index);

/// Returns the name of a rank's file, "rank-00003.safetensors".
std::string rank_file_name(int rank);

/// Returns an index as text. Strings are written as UTF-8; bytes that are not come back as U+FFFD.
std::string to_json(const CheckpointIndex& index);

/// Reads an index. @throws Error (input) with `file` and key for one of another version, one that is damaged,
/// and for tensors of which some value is in no piece, or in two.
CheckpointIndex parse_checkpoint_index(std::string_view text, const std::string& file);

}  // namespace dflop
