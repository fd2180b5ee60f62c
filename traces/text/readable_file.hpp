// A ReadableFile allows reads at any offset while other processes may change the file. If bytes are missing,
// read() throws an Error, whereas an access to a Mapping would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dflop {

/// A ReadableFile is an open regular file. Several threads may read it at once.
class ReadableFile {
 public:
  /// Opens a file. @throws Error (input) if it is not a regular file or cannot be opened
  explicit ReadableFile(const std::string& path);
  ~ReadableFile();
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  const std::string& path() const { return path_; }
  /// Returns the size at the time of opening.
  std::uint64_t size() const { return size_; }
  /// Returns the file descriptor, for mapping the file into memory.
  int descriptor() const { return file_; }

  /// Reads `size` bytes at `offset`. @throws Error (input) with file and offset if the file ends before the
  /// last of these bytes
  void read(std::uint64_t offset, void* out, std::size_t size) const;

 private:
  std::string path_;
  int file_;
  std::uint64_t size_ = 0;
};

}  // namespace dflop
