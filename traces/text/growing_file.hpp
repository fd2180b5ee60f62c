// A GrowingFile is an output that others read while it is written.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace dflop {

/// GrowingFiles are never shortened: a piece is in the file, as far as the system is concerned, when add()
/// returns.
class GrowingFile {
 public:
  enum class Mode {
    append,  ///< behind what is there, if there is a file
    create,  ///< a new file; there may be none of this name
  };

  /// @throws Error (output) with the path and the system's reason
  GrowingFile(const std::string& path, Mode mode);

  /// Writes a piece behind those before. @throws Error (output), as on a full disk
  void add(std::string_view piece);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace dflop
