#include "traces/text/growing_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

/// Writes all bytes. Returns 0, or the error number.
int write_to(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

GrowingFile::GrowingFile(const std::string& path, Mode mode) : path_(path) {
  const int made = mode == Mode::append ? O_APPEND : O_EXCL;
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | made, 0666);
  if (file_ < 0)
    throw Error(ErrorKind::output, std::string("cannot be opened: ") + std::strerror(errno), path);
}

GrowingFile::~GrowingFile() {
  if (file_ >= 0) ::close(file_);
}

GrowingFile::GrowingFile(GrowingFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

GrowingFile& GrowingFile::operator=(GrowingFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

void GrowingFile::add(std::string_view piece) {
  struct stat before {};
  const bool is_file = ::fstat(file_, &before) == 0 && S_ISREG(before.st_mode);
  const int problem = write_to(file_, piece);
  if (problem == 0) return;
  // Otherwise a resumed run would append its next piece to a partial one.
  const bool is_cut = is_file && ::ftruncate(file_, before.st_size) == 0;
  throw Error(ErrorKind::output,
              std::string("cannot be written: ") + std::strerror(problem) +
                  (is_file && !is_cut ? "; its last piece is incomplete" : ""),
              path_);
}

}  // namespace dflop
