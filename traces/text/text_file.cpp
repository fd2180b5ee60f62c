#include "traces/text/text_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;
constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16 asks zlib for the gzip format

/// Returns the size of [begin, end) for zlib, at most what its counter can hold.
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
  if (bytes % kMiB != 0) return fmt::format("{} bytes", bytes);
  const bool whole_gib = bytes % (kMiB << 10) == 0;
  return whole_gib ? fmt::format("{} GiB", bytes / (kMiB << 10)) : fmt::format("{} MiB", bytes / kMiB);
}

[[noreturn]] void refuse_longer(const std::string& path, std::int64_t longest) {
  refuse_input(path, "expected at most {}, found more", size_name(longest));
}

std::atomic<bool> takes_regular_files_alone = false;

/// Returns how many bytes may be read of an open file. @throws Error (input) for a directory, and if it is
/// known to have more.
std::int64_t most_to_read(std::FILE* file, std::int64_t longest, const std::string& path) {
  struct stat status {};
  if (::fstat(::fileno(file), &status) != 0) return longest;  // reading it reports the reason
  if (S_ISDIR(status.st_mode)) refuse_input(path, "expected a file, found a directory");
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
    const auto refuse = [&](const std::string& found) {
      refuse_input(file, "expected a complete gzip file, found {}", found);
    };
    if (status == Z_BUF_ERROR) refuse("one that ends early");  // all is read, and more is required
    if (status != Z_OK && status != Z_STREAM_END) {
      refuse(fmt::format("damage ({})", stream.msg != nullptr ? stream.msg : "no detail"));
    }
    taken += piece - stream.avail_in;
    text.append(chunk, 0, kChunk - stream.avail_out);
    if (static_cast<std::int64_t>(text.size()) > longest) {
      refuse(fmt::format("one that unpacks to more than {}", size_name(longest)));
    }
    // Several gzip streams in one file are the concatenation of their texts (RFC 1952); anything else after
    // the end is damage.
    if (status == Z_STREAM_END) {
      if (taken == bytes.size()) return text;
      inflateReset(&stream);
    }
  }
}

std::string offset_place(const std::string& file, std::uint64_t offset) {
  return fmt::format("{}: offset {}", file, offset);
}

void refuse_pipes_and_devices() {
  takes_regular_files_alone = true;
}

std::string read_text_file(const std::string& path, std::int64_t longest) {
  std::error_code ignored;  // opening it reports the error; opening a pipe would wait
  if (takes_regular_files_alone && std::filesystem::exists(path, ignored) &&
      !std::filesystem::is_regular_file(path, ignored) && !std::filesystem::is_directory(path, ignored))
    refuse_input(path, "expected a file, found a pipe or device");
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) refuse_input(path, "cannot be opened: {}", std::strerror(errno));
  const std::int64_t most = most_to_read(file.get(), longest, path);
  std::string text;
  std::array<char, 1 << 16> chunk;
  std::size_t read = 0;
  while ((read = std::fread(chunk.data(), 1, chunk.size(), file.get())) > 0) {
    text.append(chunk.data(), read);
    if (static_cast<std::int64_t>(text.size()) > most) refuse_longer(path, most);
  }
  if (std::ferror(file.get()) != 0) refuse_input(path, "cannot be read: {}", std::strerror(errno));
  return gunzip_if_needed(std::move(text), path);
}

std::optional<std::string> read_file_if_there(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status itself = std::filesystem::symlink_status(path, ignored);
  if (itself.type() == std::filesystem::file_type::not_found) return std::nullopt;
  const std::filesystem::file_status file = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(file))
    refuse_input(path, "a link that leads nowhere: expected a file; the copy may not be complete");
  if (!std::filesystem::is_regular_file(file))
    refuse_input(path, "expected a file, found a folder, pipe or device");
  return read_text_file(path);
}

namespace {

namespace fs = std::filesystem;

/// Writes to `out`, if it is open, and closes it.
void write_all(std::FILE* out, std::string_view bytes, const std::string& path) {
  if (out == nullptr) refuse_output(path, std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size();
  const int write_errno = errno;
  if (std::fclose(out) != 0 || !written) refuse_output(path, std::strerror(written ? errno : write_errno));
}

}  // namespace

StagedOutputs::StagedOutputs() = default;
StagedOutputs::~StagedOutputs() = default;

void StagedOutputs::add(const std::string& path, std::string_view bytes) {
  const bool compressed = path.size() > 3 && path.ends_with(".gz");
  const std::string packed = compressed ? gzip(bytes) : std::string();
  if (compressed) bytes = packed;
  if (is_pipe_or_device(path)) {
    const std::scoped_lock lock(adding_);
    streams_.push_back({path, std::string(bytes)});
    return;
  }
  auto file = std::make_unique<StagedFile>(path);
  file->append(bytes);
  file->close();
  const std::scoped_lock lock(adding_);
  files_.push_back(std::move(file));
}

void StagedOutputs::commit() {
  // Write to full devices and closed pipes first, because they fail more often.
  for (const Stream& stream : streams_) {
    write_all(std::fopen(stream.path.c_str(), "wb"), stream.bytes, stream.path);
  }
  streams_.clear();
  for (const auto& file : files_) file->take_final_name();
  files_.clear();
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  StagedOutputs output;
  output.add(path, bytes);
  output.commit();
}

void check_output(const std::string& path) {
  // Only an attempt shows whether a file can be made: the permissions of /proc, or of a full or network file
  // system, do not tell.
  StagedOutputs().add(path, "");
}

std::optional<FolderLock> FolderLock::try_hold(const std::string& folder) {
  const std::string path = (fs::path(folder) / ".lock").string();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) refuse_output(path, std::strerror(errno));
  FolderLock lock(file);
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return lock;
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace dflop
