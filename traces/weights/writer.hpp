// This file writes weights in pieces. The caller declares all tensors first and then appends their data, so
// that the tensors are never all in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/text/staged_file.hpp"
#include "traces/weights/folder.hpp"
#include "traces/weights/header.hpp"

namespace dflop {

struct WriterOptions {
  Metadata metadata = {{"format", "pt"}};  ///< some readers reject a file without this format
  bool sync = false;                       ///< finish() returns when everything is on disk
  bool checksum = false;                   ///< compute the CRC-32 of the file while it is written
};

/// A SafetensorsWriter writes one file, which is either complete or absent (StagedFile):
///
///     SafetensorsWriter writer(path, tensors);
///     for (const TensorShape& tensor : tensors)
///       for (...) writer.append(tensor.name, piece);
///     writer.finish();
///
/// Append the tensors in order, each row by row, in pieces of any size. A tensor without numbers needs no
/// piece.
class SafetensorsWriter {
 public:
  /// Makes the file under a temporary name and writes its header. @throws Error (output); what lay_out()
  /// throws
  SafetensorsWriter(const std::string& path, std::span<const TensorShape> tensors,
                    const WriterOptions& options = {});

  /// Appends bytes unchanged.
  /// @throws Error (internal) for a tensor out of order, and for more bytes than it has left; Error (output)
  void append(std::string_view tensor, std::span<const std::byte> bytes);
  /// Appends numbers, converted by encode() to the tensor's dtype. @throws Error (internal) for a tensor out
  /// of order, for more numbers than it has left, and for a dtype that encode() does not support; Error
  /// (output)
  void append(std::string_view tensor, std::span<const float> numbers);
  void append(std::string_view tensor, std::span<const double> numbers);

  /// Tells whether all tensors are complete.
  bool has_all() const { return turn_ == header_.tensors.size(); }

  /// Writes the rest of the buffer and closes the file, which keeps its temporary name.
  /// @throws Error (internal) if data of a tensor are missing; Error (output)
  void complete();

  /// Completes the file if necessary, and gives it its final name. @throws what complete() throws
  void finish();

  std::uint64_t file_bytes() const { return header_.file_bytes; }
  /// Returns the CRC-32 of the completed file. @pre WriterOptions::checksum
  std::uint32_t checksum() const { return checksum_; }

 private:
  template <typename Real>
  void append_numbers(std::string_view tensor, std::span<const Real> numbers);
  /// Returns the next tensor. @throws Error (internal) if it is not `tensor`
  const StoredTensor& in_turn(std::string_view tensor) const;
  /// Counts written bytes of the next tensor, and moves on when it is complete.
  /// @throws Error (internal) for more bytes than the tensor has left
  void count(std::uint64_t bytes);
  void pass_finished();
  void flush();
  void write(std::string_view bytes);

  std::string path_;
  SafetensorsHeader header_;
  bool sync_;
  bool counts_checksum_;
  std::uint32_t checksum_ = 0;  // of the bytes written
  StagedFile file_;
  std::vector<std::byte> buffer_;
  std::size_t filled_ = 0;     // bytes in the buffer
  std::size_t turn_ = 0;       // the next tensor
  std::uint64_t counted_ = 0;  // bytes of the next tensor that were appended
  bool is_complete_ = false;
};

/// Divides tensors into files as transformers does, and returns the number of tensors in each file. A file
/// ends before the tensor that would make its data exceed `most_bytes`.
std::vector<std::size_t> divide_into_files(std::span<const TensorShape> tensors, std::uint64_t most_bytes);

/// A file of a folder has at most this many bytes of data, unless a single tensor is larger. Most published
/// models use the same limit.
inline constexpr std::uint64_t kMaxFileBytes = 5'000'000'000;

/// A WeightsWriter writes a folder's weights in the layout of WeightsFolder: one file, or several and their
/// index. The files get their final names together, in finish(). Use it like SafetensorsWriter.
class WeightsWriter {
 public:
  /// Begins the first file. The folder must exist.
  /// @throws Error (output) also if several files would be made next to a single file, which readers would
  /// take for all weights; what SafetensorsWriter throws
  WeightsWriter(const std::string& folder, std::vector<TensorShape> tensors,
                const WriterOptions& options = {}, std::uint64_t most_file_bytes = kMaxFileBytes);

  /// Appends like SafetensorsWriter::append().
  template <typename Value>
  void append(std::string_view tensor, std::span<const Value> values) {
    current().append(tensor, values);
  }

  /// Completes all files and gives them their final names. @throws what SafetensorsWriter::finish() throws.
  /// Only a failure of renaming can leave some files with their final names and others without.
  void finish();

 private:
  /// Returns the writer of the first incomplete file, or of the last one if all are complete.
  SafetensorsWriter& current();
  void check_all();
  void begin_file();
  std::string file_name(std::size_t file) const;

  std::string folder_;
  std::vector<TensorShape> tensors_;
  WriterOptions options_;
  std::vector<std::size_t> counts_;  // number of tensors in each file
  WeightMap weights_;
  std::uint64_t total_bytes_ = 0;  // sum over all tensors
  std::size_t begun_ = 0;          // number of tensors in the files begun so far
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
};

}  // namespace dflop
