#include "traces/text/readable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/refuse.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

// Without O_NONBLOCK, opening a pipe would wait for its other end.
ReadableFile::ReadableFile(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_ < 0) refuse_input(path, "cannot be opened: {}", std::strerror(errno));
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file_);
    refuse_input(path, "expected a file, found a {}",
                 S_ISDIR(status.st_mode) ? "directory" : "pipe or device");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

ReadableFile::~ReadableFile() {
  ::close(file_);
}

void ReadableFile::read(std::uint64_t offset, void* out, std::size_t size) const {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got =
        ::pread(file_, static_cast<char*>(out) + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_input(offset_place(path_, offset), "cannot be read: {}", std::strerror(errno));
    if (got == 0) {
      refuse_input(offset_place(path_, offset), "expected {} bytes, found {} to the file's end", size, done);
    }
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace dflop
