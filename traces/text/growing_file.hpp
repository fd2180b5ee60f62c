// A GrowingFile is an output that others read while it is written.
#pragma once

#include <string>
#include <string_view>

namespace dflop {

/// A GrowingFile has whole pieces: one is in the file, as far as the system is concerned, when add() returns,
/// and none of it where add() fails.
class GrowingFile {
 public:
  enum class Mode {
    append,  ///< behind what is there, if there is a file
    create,  ///< a new file; there may be none of this name
  };

  /// @throws Error (output) with the path and the system's reason
  GrowingFile(const std::string& path, Mode mode);
  ~GrowingFile();
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&& other) noexcept;

  /// Writes a piece behind those before. @throws Error (output), as on a full disk
  void add(std::string_view piece);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace dflop
