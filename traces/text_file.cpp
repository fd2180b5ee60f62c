#include "traces/text_file.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "core/error.hpp"
#include "traces/gzip.hpp"

namespace dflop {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// "4 GiB", or "1000 bytes".
std::string size_name(std::int64_t bytes) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  return bytes % kGiB == 0 ? std::to_string(bytes / kGiB) + " GiB" : std::to_string(bytes) + " bytes";
}

}  // namespace

std::string read_text_file(const std::string& path, std::int64_t longest) {
  std::error_code ignored;  // what cannot be looked at cannot be opened either, which says why
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorKind::input, "expected a file, found a directory", path);
  }
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    throw Error(ErrorKind::input, std::string("cannot be opened: ") + std::strerror(errno), path);
  }
  std::string text;
  std::array<char, 1 << 16> chunk;
  std::size_t read = 0;
  while ((read = std::fread(chunk.data(), 1, chunk.size(), file.get())) > 0) {
    text.append(chunk.data(), read);
    if (static_cast<std::int64_t>(text.size()) > longest) {
      throw Error(ErrorKind::input, "expected at most " + size_name(longest) + ", found more", path);
    }
  }
  if (std::ferror(file.get()) != 0) {
    throw Error(ErrorKind::input, std::string("cannot be read: ") + std::strerror(errno), path);
  }
  return gunzip_if_needed(std::move(text), path);
}

}  // namespace dflop
