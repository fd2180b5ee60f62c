// A ReadableFile is read at any place, as often as need be, while others may change it: what is gone is an
// error and not the end of the process, as it is of a Mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dflop {

/// ReadableFiles may be read by several threads at once.
class ReadableFile {
 public:
  /// Opens a file. @throws Error (input) for what is no regular file, or cannot be opened
  explicit ReadableFile(const std::string& path);
  ~ReadableFile();
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  const std::string& path() const { return path_; }
  /// Returns the bytes that it had when it was opened.
  std::uint64_t size() const { return size_; }

  /// Reads `size` bytes from an offset on. @throws Error (input) with file and offset where there are fewer
  void read(std::uint64_t offset, void* out, std::size_t size) const;

 private:
  std::string path_;
  int file_;
  std::uint64_t size_ = 0;
};

}  // namespace dflop
