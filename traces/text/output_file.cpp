#include "traces/text/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "core/error.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
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
