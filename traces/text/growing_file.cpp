#include "traces/text/growing_file.hpp"

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace dflop {

GrowingFile::GrowingFile(const std::string& path, Mode mode)
    : path_(path), file_(std::fopen(path.c_str(), mode == Mode::append ? "ab" : "wbx")) {
  if (file_ == nullptr)
    throw Error(ErrorKind::output, std::string("cannot be opened: ") + std::strerror(errno), path);
}

void GrowingFile::add(std::string_view piece) {
  if (std::fwrite(piece.data(), 1, piece.size(), file_.get()) != piece.size() ||
      std::fflush(file_.get()) != 0) {
    throw Error(ErrorKind::output, std::string("cannot be written: ") + std::strerror(errno), path_);
  }
}

}  // namespace dflop
