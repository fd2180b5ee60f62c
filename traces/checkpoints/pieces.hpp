// Pieces of tensors are written by the ranks that hold them and read by those that need them, whatever plan
// either has: no value passes through another rank, and none is in memory but those that are on their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "traces/checkpoints/index.hpp"
#include "traces/weights/safetensors.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {

/// A PlacedPiece is a piece and the tensor that it is of.
struct PlacedPiece {
  const PiecedTensor* tensor = nullptr;
  const TensorPiece* piece = nullptr;
};

/// Returns the pieces of a file, in the order in which they are written.
std::vector<PlacedPiece> pieces_of(const CheckpointIndex& index, std::size_t file);

/// A PieceWriter writes one file of a checkpoint:
///
///     PieceWriter writer(folder, index, file, Dtype::f32);
///     for (const PlacedPiece& placed : writer.pieces())
///       for (...) writer.append(placed, values);
///     writer.finish();
///
/// Values come in the order of the piece, in as many parts as it takes.
class PieceWriter {
 public:
  /// Makes the file. The index outlives the writer.
  /// @param dtype  of the values in the file: F32 or F64
  /// @throws Error (output)
  PieceWriter(const std::string& folder, const CheckpointIndex& index, std::size_t file, Dtype dtype);

  const std::vector<PlacedPiece>& pieces() const { return pieces_; }

  /// Appends values. @throws Error (internal) for a piece out of turn and values beyond its last;
  /// Error (output)
  template <typename Real>
  void append(const PlacedPiece& placed, std::span<const Real> values) {
    writer_.append(placed.piece->name, values);
  }

  /// Returns when the file is on the disk; says what it came to. @throws Error (internal) where values are
  /// missing; Error (output)
  CheckpointFile finish();

 private:
  std::string name_;
  std::vector<PlacedPiece> pieces_;
  SafetensorsWriter writer_;
};

/// A CheckpointReader reads the tensors of one checkpoint. Several threads may do so at once.
class CheckpointReader {
 public:
  /// Reads the index of a folder; files are opened when they are needed.
  /// @throws Error (input) where there is no index; as parse_checkpoint_index()
  explicit CheckpointReader(const std::string& folder);

  const std::string& path() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }

  /// Reads all files, several at once, or those whose places in the index `counts` holds for. @throws Error
  /// (input) naming the first one, in the index's order, that is missing, or has other bytes than when it was
  /// written; as read()
  void verify(const std::function<bool(std::size_t)>& counts = {}) const;

  /// Returns the tensor. @throws Error (input) where there is none
  const PiecedTensor& at(TensorKind kind, std::string_view name) const;

  /// Reads rows x columns of a whole tensor of this checkpoint, row by row, out of the pieces that have them.
  /// @param out  as many numbers as that are
  /// @throws Error (input) naming a file that is missing, or lacks a piece that the index says it has;
  ///         Error (internal) for rows and columns that are not within the tensor, and another size of `out`
  void read(const PiecedTensor& tensor, IndexRun rows, IndexRun columns, std::span<float> out) const;
  void read(const PiecedTensor& tensor, IndexRun rows, IndexRun columns, std::span<double> out) const;

 private:
  void verify_file(std::size_t file) const;
  const SafetensorsFile& open(std::size_t file) const;
  template <typename Real>
  void read_all(const PiecedTensor& tensor, IndexRun rows, IndexRun columns, std::span<Real> out) const;

  std::string folder_;
  CheckpointIndex index_;
  mutable std::mutex mutex_;  // guards files_
  mutable std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

}  // namespace dflop
