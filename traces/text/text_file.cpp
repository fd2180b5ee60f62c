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
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;
constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16 asks zlib for the gzip format

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
  if (bytes % kMiB != 0) return fmt::format("{} bytes", bytes);
  const bool whole_gib = bytes % (kMiB << 10) == 0;
  return whole_gib ? fmt::format("{} GiB", bytes / (kMiB << 10)) : fmt::format("{} MiB", bytes / kMiB);
}

[[noreturn]] void refuse_longer(const std::string& path, std::int64_t longest) {
  refuse_input(path, "expected at most {}, found more", size_name(longest));
}

/// Returns how much may be read of an open file. @throws Error (input) for a directory, and where it is known
/// to have more.
std::int64_t most_to_read(std::FILE* file, std::int64_t longest, const std::string& path) {
  struct stat status {};
  if (::fstat(::fileno(file), &status) != 0) return longest;  // reading it says why
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
    if (status == Z_BUF_ERROR) refuse("one that ends early");  // all is read, and more is needed
    if (status != Z_OK && status != Z_STREAM_END) {
      refuse(fmt::format("damage ({})", stream.msg != nullptr ? stream.msg : "no detail"));
    }
    taken += piece - stream.avail_in;
    text.append(chunk, 0, kChunk - stream.avail_out);
    if (static_cast<std::int64_t>(text.size()) > longest) {
      refuse(fmt::format("one that unpacks to more than {} bytes", longest));
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

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_output(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::output, "cannot write: " + reason, path);
}

/// A PendingPath is a path that a signal handler can read: no heap, no locks.
struct PendingPath {
  enum State : int { free, reserved, set };

  std::atomic<int> state{free};
  std::array<char, PATH_MAX> path{};
};
static_assert(std::atomic<int>::is_always_lock_free);

std::array<PendingPath, 256> pending_paths;

/// Notes a path; null if the table is full or the path too long: then a signal leaves the file behind.
PendingPath* remember_path(const std::string& path) {
  if (path.size() >= PATH_MAX) return nullptr;
  for (PendingPath& pending : pending_paths) {
    int expected = PendingPath::free;
    if (!pending.state.compare_exchange_strong(expected, PendingPath::reserved)) continue;
    std::memcpy(pending.path.data(), path.c_str(), path.size() + 1);
    pending.state = PendingPath::set;
    return &pending;
  }
  return nullptr;
}

extern "C" void remove_temporaries_and_end(int signal) {
  for (const PendingPath& pending : pending_paths) {
    if (pending.state == PendingPath::set) ::unlink(pending.path.data());
  }
  ::raise(signal);  // SA_RESETHAND has put the default action back
}

/// Writes to `out`, if it could be opened, and closes it.
void write_all(std::FILE* out, std::string_view bytes, const std::string& path) {
  if (out == nullptr) refuse_output(path, std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size();
  const int write_errno = errno;
  if (std::fclose(out) != 0 || !written) refuse_output(path, std::strerror(written ? errno : write_errno));
}

/// Returns the file that a path names, which need not exist yet. A circle of links is refused by fs::status
/// before.
fs::path follow_links(fs::path path) {
  while (fs::is_symlink(path)) path = path.parent_path() / fs::read_symlink(path);
  return path;
}

/// Tells what a path is. @throws Error (output) for a folder, fs::filesystem_error
bool is_pipe_or_device(const std::string& path) {
  const fs::file_status status = fs::status(path);
  if (fs::is_directory(status)) refuse_output(path, "it is a directory");
  return fs::exists(status) && !fs::is_regular_file(status);
}

}  // namespace

/// A TemporaryFile is the complete new content of a file under another name. It goes unless it takes the
/// final name.
class StagedOutputs::TemporaryFile {
 public:
  /// Writes the file. @throws Error (output), fs::filesystem_error
  TemporaryFile(const std::string& path, std::string_view bytes)
      : path_(path),
        target_(follow_links(path).string()),
        name_(fmt::format("{}.part-{:08x}", target_, std::random_device()())),
        pending_(remember_path(name_)) {
    try {
      write(bytes);
    } catch (...) {
      remove();
      throw;
    }
  }
  ~TemporaryFile() { remove(); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void take_final_name() {
    if (std::rename(name_.c_str(), target_.c_str()) != 0) refuse_output(path_, std::strerror(errno));
    is_there_ = false;
  }

 private:
  void write(std::string_view bytes) {
    struct stat old {};
    const bool replaces = ::stat(target_.c_str(), &old) == 0;
    // The content of a private file is at no time readable by others.
    const int file = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
    if (file < 0) refuse_output(path_, std::strerror(errno));
    is_there_ = true;
    // File systems without permissions refuse this, and have none to keep.
    if (replaces) static_cast<void>(::fchmod(file, old.st_mode & 0777));
    write_all(::fdopen(file, "wb"), bytes, path_);
  }

  void remove() {
    if (is_there_) ::unlink(name_.c_str());
    if (pending_ != nullptr) pending_->state = PendingPath::free;
    pending_ = nullptr;
  }

  const std::string path_;  // as the user gave it
  const std::string target_;
  const std::string name_;
  PendingPath* pending_;
  bool is_there_ = false;
};

StagedOutputs::StagedOutputs() = default;
StagedOutputs::~StagedOutputs() = default;

void StagedOutputs::add(const std::string& path, std::string_view bytes) {
  const bool compressed = path.size() > 3 && path.ends_with(".gz");
  const std::string packed = compressed ? gzip(bytes) : std::string();
  if (compressed) bytes = packed;
  try {
    if (is_pipe_or_device(path)) {
      streams_.push_back({path, std::string(bytes)});
    } else {
      files_.push_back(std::make_unique<TemporaryFile>(path, bytes));
    }
  } catch (const fs::filesystem_error& error) {
    refuse_output(path, error.code().message());
  }
}

void StagedOutputs::commit() {
  // What fails more often comes first: a full device, a pipe that nobody reads any more.
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
  // Only trying says whether a file can be made: permissions of /proc, of a full or a network's file system
  // do not.
  StagedOutputs().add(path, "");
}

void remove_temporaries_on_signals() {
  struct sigaction action {};
  action.sa_handler = remove_temporaries_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction usual {};
    ::sigaction(signal, nullptr, &usual);
    if (usual.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // so that write() says EFBIG
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
