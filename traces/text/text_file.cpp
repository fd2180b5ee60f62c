#include "traces/text/text_file.hpp"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;
constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16 asks zlib for the gzip format

[[noreturn]] void refuse_gzip(const std::string& file, const std::string& found) {
  throw Error(ErrorKind::input, "expected a complete gzip file, found " + found, file);
}

/// Returns the bytes of [begin, end) as zlib counts them, at most what its counter holds.
uInt next_piece(std::size_t left) {
  return static_cast<uInt>(std::min<std::size_t>(left, std::numeric_limits<uInt>::max() / 2));
}

Bytef* as_zlib_input(const char* data) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(data));
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// Returns "4 GiB", or "1000 bytes".
std::string size_name(std::int64_t bytes) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  if (bytes % kMiB != 0) return std::to_string(bytes) + " bytes";
  return bytes % (kMiB << 10) == 0 ? std::to_string(bytes / (kMiB << 10)) + " GiB"
                                   : std::to_string(bytes / kMiB) + " MiB";
}

[[noreturn]] void refuse_longer(const std::string& path, std::int64_t longest) {
  throw Error(ErrorKind::input, "expected at most " + size_name(longest) + ", found more", path);
}

/// Returns how much may be read of an open file. @throws Error (input) for a directory, and where it is known
/// to have more.
std::int64_t most_to_read(std::FILE* file, std::int64_t longest, const std::string& path) {
  struct stat status {};
  if (::fstat(::fileno(file), &status) != 0) return longest;  // reading it says why
  if (S_ISDIR(status.st_mode)) throw Error(ErrorKind::input, "expected a file, found a directory", path);
  if (!S_ISREG(status.st_mode)) return std::min(longest, kLongestStream);
  if (status.st_size > longest) refuse_longer(path, longest);
  return longest;
}

}  // namespace

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw Error(ErrorKind::internal, "zlib has no memory to compress");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, deflateEnd);
  std::string packed;
  std::string chunk(kChunk, '\0');
  std::size_t taken = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    const uInt piece = next_piece(bytes.size() - taken);
    stream.next_in = as_zlib_input(bytes.data() + taken);
    stream.avail_in = piece;
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = kChunk;
    status = deflate(&stream, taken + piece == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    taken += piece - stream.avail_in;
    packed.append(chunk, 0, kChunk - stream.avail_out);
  }
  return packed;
}

std::string gunzip_if_needed(std::string bytes, const std::string& file, std::int64_t longest) {
  if (bytes.size() < 2 || bytes[0] != '\x1f' || bytes[1] != '\x8b') return bytes;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK)
    throw Error(ErrorKind::internal, "zlib has no memory to unpack");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  std::string text;
  std::string chunk(kChunk, '\0');
  for (std::size_t taken = 0;;) {
    const uInt piece = next_piece(bytes.size() - taken);
    stream.next_in = as_zlib_input(bytes.data() + taken);
    stream.avail_in = piece;
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = kChunk;
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status == Z_BUF_ERROR) refuse_gzip(file, "one that ends early");  // all is read, and more is needed
    if (status != Z_OK && status != Z_STREAM_END) {
      refuse_gzip(file, std::string("damage (") + (stream.msg != nullptr ? stream.msg : "no detail") + ")");
    }
    taken += piece - stream.avail_in;
    text.append(chunk, 0, kChunk - stream.avail_out);
    if (static_cast<std::int64_t>(text.size()) > longest) {
      refuse_gzip(file, "one that unpacks to more than " + std::to_string(longest) + " bytes");
    }
    // Several gzip streams in one file are their texts joined (RFC 1952); anything else after the end is
    // damage.
    if (status == Z_STREAM_END) {
      if (taken == bytes.size()) return text;
      inflateReset(&stream);
    }
  }
}

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
