#include "traces/text/text_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/error.hpp"
#include "traces/text/gzip.hpp"

namespace dflop {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// "4 GiB", or "1000 bytes".
std::string size_name(std::int64_t bytes) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  if (bytes % kMiB != 0) return std::to_string(bytes) + " bytes";
  return bytes % (kMiB << 10) == 0 ? std::to_string(bytes / (kMiB << 10)) + " GiB"
                                   : std::to_string(bytes / kMiB) + " MiB";
}

[[noreturn]] void refuse_longer(const std::string& path, std::int64_t longest) {
  throw Error(ErrorKind::input, "expected at most " + size_name(longest) + ", found more", path);
}

/// How much may be read of an open file. @throws Error (input) for a directory, and where it is known to have
/// more.
std::int64_t most_to_read(std::FILE* file, std::int64_t longest, const std::string& path) {
  struct stat status {};
  if (::fstat(::fileno(file), &status) != 0) return longest;  // reading it says why
  if (S_ISDIR(status.st_mode)) throw Error(ErrorKind::input, "expected a file, found a directory", path);
  if (!S_ISREG(status.st_mode)) return std::min(longest, kLongestStream);
  if (status.st_size > longest) refuse_longer(path, longest);
  return longest;
}

}  // namespace

std::string read_text_file(const std::string& path, std::int64_t longest) {
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    throw Error(ErrorKind::input, std::string("cannot be opened: ") + std::strerror(errno), path);
  }
  const std::int64_t most = most_to_read(file.get(), longest, path);
  std::string text;
  std::array<char, 1 << 16> chunk;
  std::size_t read = 0;
  while ((read = std::fread(chunk.data(), 1, chunk.size(), file.get())) > 0) {
    text.append(chunk.data(), read);
    if (static_cast<std::int64_t>(text.size()) > most) refuse_longer(path, most);
  }
  if (std::ferror(file.get()) != 0) {
    throw Error(ErrorKind::input, std::string("cannot be read: ") + std::strerror(errno), path);
  }
  return gunzip_if_needed(std::move(text), path);
}

}  // namespace dflop
