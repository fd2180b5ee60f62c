// Weights are written as they come: what is declared first is then appended in pieces, never all in memory.
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
  Metadata metadata = {{"format", "pt"}};  ///< some readers refuse a file without this format
  bool sync = false;                       ///< finish() returns when all is on the disk
  bool checksum = false;                   ///< the CRC-32 of the file is counted while it is written
};

/// A SafetensorsWriter writes one file, which is complete or not there (StagedFile):
///
///     SafetensorsWriter writer(path, tensors);
///     for (const TensorShape& tensor : tensors)
///       for (...) writer.append(tensor.name, piece);
///     writer.finish();
///
/// Pieces come in the order of the tensors, each row by row, and may end anywhere. A tensor without numbers
/// needs none.
class SafetensorsWriter {
 public:
  /// Makes the file under another name and writes its header. @throws Error (output); as lay_out()
  SafetensorsWriter(const std::string& path, std::span<const TensorShape> tensors,
                    const WriterOptions& options = {});

  /// Appends bytes as they are.
  /// @throws Error (internal) for a tensor that is not the one in turn, and more than it has left;
  ///         Error (output)
  void append(std::string_view tensor, std::span<const std::byte> bytes);
  /// Appends numbers, as encode() converts them to the tensor's dtype. @throws as above, Error (internal)
  /// for a dtype that encode() does not know
  void append(std::string_view tensor, std::span<const float> numbers);
  void append(std::string_view tensor, std::span<const double> numbers);

  /// Tells whether all tensors have their data.
  bool has_all() const { return turn_ == header_.tensors.size(); }

  /// Writes what is left in memory and closes the file, which has still the other name.
  /// @throws Error (internal) where data of a tensor are missing; Error (output)
  void complete();

  /// Completes the file if it is not, and gives it its name. @throws as complete()
  void finish();

  std::uint64_t file_bytes() const { return header_.file_bytes; }
  /// Returns the CRC-32 of the completed file. @pre WriterOptions::checksum
  std::uint32_t checksum() const { return checksum_; }

 private:
  template <typename Real>
  void append_numbers(std::string_view tensor, std::span<const Real> numbers);
  /// Returns the tensor in turn. @throws Error (internal) if it is not `tensor`
  const StoredTensor& in_turn(std::string_view tensor) const;
  /// Counts bytes of the tensor in turn, and goes on to the next one behind its last.
  /// @throws Error (internal) for more than it has left
  void count(std::uint64_t bytes);
  void pass_finished();
  void flush();
  void write(std::string_view bytes);

  std::string path_;
  SafetensorsHeader header_;
  bool sync_;
  bool counts_checksum_;
  std::uint32_t checksum_ = 0;  // of what is written
  StagedFile file_;
  std::vector<std::byte> buffer_;
  std::size_t filled_ = 0;     // of the buffer
  std::size_t turn_ = 0;       // the tensor in turn
  std::uint64_t counted_ = 0;  // bytes of it
  bool is_complete_ = false;
};

/// Returns how many of the first tensors make a file each, as the models' own library divides them: a file
/// ends before the tensor with which it would have more than `most_bytes` of data.
std::vector<std::size_t> divide_into_files(std::span<const TensorShape> tensors, std::uint64_t most_bytes);

/// A file of a folder has at most so many bytes of data, but for one larger tensor, as those of most
/// published models.
inline constexpr std::uint64_t kMostFileBytes = 5'000'000'000;

/// A WeightsWriter writes a folder's weights as WeightsFolder reads them: one file, or several and their
/// index. They appear together, at the end. It is used as SafetensorsWriter is.
class WeightsWriter {
 public:
  /// Begins the first file. The folder has to be there.
  /// @throws Error (output) also where several files would be made beside one that readers would take for
  /// all; as SafetensorsWriter
  WeightsWriter(const std::string& folder, std::vector<TensorShape> tensors,
                const WriterOptions& options = {}, std::uint64_t most_file_bytes = kMostFileBytes);

  /// Appends as SafetensorsWriter does.
  template <typename Value>
  void append(std::string_view tensor, std::span<const Value> values) {
    current().append(tensor, values);
  }

  /// Completes the files and gives all their names. @throws as SafetensorsWriter::finish(); only renaming can
  /// leave some files done and others not
  void finish();

 private:
  /// Returns the writer of the first file that lacks data; of the last one where none does.
  SafetensorsWriter& current();
  void check_all();
  void begin_file();
  std::string file_name(std::size_t file) const;

  std::string folder_;
  std::vector<TensorShape> tensors_;
  WriterOptions options_;
  std::vector<std::size_t> counts_;  // of tensors, of each file
  WeightMap weights_;
  std::uint64_t total_bytes_ = 0;  // of all tensors
  std::size_t begun_ = 0;          // tensors of the files that are begun
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
};

}  // namespace dflop
