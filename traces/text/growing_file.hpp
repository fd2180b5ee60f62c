// A GrowingFile is an output file that others can read while it is written.
#pragma once

#include <string>
#include <string_view>

namespace dflop {

/// A GrowingFile consists of whole pieces. When add() returns, its piece is in the file (as the operating
/// system sees it). If add() fails, no part of the piece is in the file.
class GrowingFile {
 public:
  enum class Mode {
    append,  ///< adds to the end of an existing file, if any
    create,  ///< makes a new file; none of this name may exist
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
