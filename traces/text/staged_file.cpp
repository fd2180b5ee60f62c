#include "traces/text/staged_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "core/error.hpp"

namespace dflop {

/// A PendingPath is a path that a signal handler can read: no heap, no locks.
struct PendingPath {
  enum State : int { free, reserved, set };

  std::atomic<int> state{free};
  std::array<char, PATH_MAX> path{};
};
static_assert(std::atomic<int>::is_always_lock_free);

namespace {

namespace fs = std::filesystem;

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

/// Returns the file that a path names, which need not exist yet.
/// @throws Error (output), also for a folder and a circle of links
std::string follow_links(const std::string& path) {
  try {
    const fs::file_status status = fs::status(path);  // refuses circles
    if (fs::is_directory(status)) refuse_output(path, "it is a directory");
    fs::path target = path;
    while (fs::is_symlink(target)) target = target.parent_path() / fs::read_symlink(target);
    return target.string();
  } catch (const fs::filesystem_error& error) {
    refuse_output(path, error.code().message());
  }
}

}  // namespace

bool sync_folder(const std::string& folder) {
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool is_synced = ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP;
  const int reason = errno;
  ::close(file);
  errno = reason;
  return is_synced;
}

void refuse_output(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::output, "cannot write: " + reason, path);
}

bool is_pipe_or_device(const std::string& path) {
  try {
    const fs::file_status status = fs::status(path);
    if (fs::is_directory(status)) refuse_output(path, "it is a directory");
    return fs::exists(status) && !fs::is_regular_file(status);
  } catch (const fs::filesystem_error& error) {
    refuse_output(path, error.code().message());
  }
}

StagedFile::StagedFile(const std::string& path)
    : path_(path),
      target_(follow_links(path)),
      name_(fmt::format("{}.part-{:08x}", target_, std::random_device()())),
      pending_(remember_path(name_)) {
  try {
    open();
  } catch (...) {
    remove();
    throw;
  }
}

StagedFile::~StagedFile() {
  remove();
}

void StagedFile::open() {
  struct stat old {};
  const bool replaces = ::stat(target_.c_str(), &old) == 0;
  // The content of a private file is at no time readable by others.
  file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
  if (file_ < 0) refuse_output(path_, std::strerror(errno));
  is_there_ = true;
  // File systems without permissions refuse this, and have none to keep.
  if (replaces) static_cast<void>(::fchmod(file_, old.st_mode & 0777));
}

void StagedFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse_output(path_, std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void StagedFile::start_sync() {
  static_cast<void>(::sync_file_range(file_, 0, 0, SYNC_FILE_RANGE_WRITE));  // sync() tells what went wrong
}

void StagedFile::sync() {
  // EINVAL says that the file system keeps nothing that could be lost.
  if (::fsync(file_) != 0 && errno != EINVAL) refuse_output(path_, std::strerror(errno));
  is_synced_ = true;
}

void StagedFile::close() {
  if (file_ < 0) return;
  if (::close(std::exchange(file_, -1)) != 0) refuse_output(path_, std::strerror(errno));
}

void StagedFile::take_final_name() {
  close();
  if (std::rename(name_.c_str(), target_.c_str()) != 0) refuse_output(path_, std::strerror(errno));
  is_there_ = false;
  if (is_synced_) sync_folder(fs::path(target_).parent_path());
}

void StagedFile::remove() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  if (is_there_) ::unlink(name_.c_str());
  is_there_ = false;
  if (pending_ != nullptr) pending_->state = PendingPath::free;
  pending_ = nullptr;
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

}  // namespace dflop
