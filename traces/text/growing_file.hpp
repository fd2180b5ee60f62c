// A GrowingFile is an output file that others can read while it is written.
#pragma once

#include <string>
#include <string_view>

namespace dflop {

/// A GrowingFile always consists of whole pieces. When add() returns, the operating system has the whole
/// piece. If add() fails, the file contains no part of the piece.
class GrowingFile {
 public:
  enum class Mode {
    append,  ///< adds to the end of the file; makes it if it is missing
    create,  ///< makes a new file; fails if the path exists
  };

  /// @throws Error (output) with the path and the system's reason
  GrowingFile(const std::string& path, Mode mode);
  ~GrowingFile();
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&& other) noexcept;

  /// Appends a piece. @throws Error (output), for example on a full disk
  void add(std::string_view piece);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace dflop
