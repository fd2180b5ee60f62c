// This file writes tensors in pieces from the ranks that hold them, and reads them on the ranks that need
// them, even under another plan. No value passes through another rank, and only values in transit are in
// memory.
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

/// A PlacedPiece is a piece together with its tensor.
struct PlacedPiece {
  const PiecedTensor* tensor = nullptr;
  const TensorPiece* piece = nullptr;
};

/// Returns the pieces of a file, in writing order.
std::vector<PlacedPiece> pieces_of(const CheckpointIndex& index, std::size_t file);

/// A PieceWriter writes one file of a checkpoint:
///
///     PieceWriter writer(folder, index, file, Dtype::f32);
///     for (const PlacedPiece& placed : writer.pieces())
///       for (...) writer.append(placed, values);
///     writer.finish();
///
/// Append the values of each piece in their order, in any number of calls.
class PieceWriter {
 public:
  /// Makes the file. The index must outlive the writer.
  /// @param dtype  type of the values in the file: F32 or F64
  /// @throws Error (output)
  PieceWriter(const std::string& folder, const CheckpointIndex& index, std::size_t file, Dtype dtype);

  const std::vector<PlacedPiece>& pieces() const { return pieces_; }

  /// Appends values. @throws Error (internal) for a piece out of order and for values beyond the piece's end;
  /// Error (output)
  template <typename Real>
  void append(const PlacedPiece& placed, std::span<const Real> values) {
    writer_.append(placed.piece->name, values);
  }

  /// Finishes the file, waits until it is on disk, and returns its name, size and checksum.
  /// @throws Error (internal) if values are missing; Error (output)
  CheckpointFile finish();

 private:
  std::string name_;
  std::vector<PlacedPiece> pieces_;
  SafetensorsWriter writer_;
};

/// A CheckpointReader reads the tensors of one checkpoint. Several threads may read at once.
class CheckpointReader {
 public:
  /// Reads the index of a folder; opens files on first use.
  /// @throws Error (input) if there is no index; what parse_checkpoint_index() throws
  explicit CheckpointReader(const std::string& folder);

  const std::string& path() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }

  /// Verifies the checksums of all files, or only of those whose indices `counts` selects. Reads several
  /// files at once.
  /// @throws Error (input) naming the first file, in the index's order, that is missing or has changed since
  /// it was written; what read() throws
  void verify(const std::function<bool(std::size_t)>& counts = {}) const;

  /// Returns the tensor of this kind and name. @throws Error (input) if there is none
  const PiecedTensor& at(TensorKind kind, std::string_view name) const;

  /// Reads a block of `tensor`, which belongs to this checkpoint, from the pieces that hold it. Fills `out`
  /// row by row.
  /// @param out  must have rows.size() * columns.size() numbers
  /// @throws Error (input) naming a file that is missing, or that lacks a piece that the index lists; Error
  /// (internal) for rows or columns outside the tensor, and for a wrong size of `out`
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
