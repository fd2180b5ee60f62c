#include "traces/text/staged_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace dflop {

/// A PendingPath is a path that a signal handler can read, without heap or locks.
struct PendingPath {
  enum State : int { free, reserved, set };

  std::atomic<int> state{free};
  std::array<char, PATH_MAX> path{};
};
static_assert(std::atomic<int>::is_always_lock_free);

namespace {

namespace fs = std::filesystem;

std::array<PendingPath, 256> pending_paths;

/// Remembers a path. Returns null if the table is full or the path too long; then a signal leaves the file
/// behind.
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

bool says_signals = false;

/// Prints "dflop: stopped by signal 2", with functions that a signal handler may call.
void say_signal(int signal) {
  std::array<char, 40> line{"dflop: stopped by signal "};
  std::size_t size = std::strlen(line.data());
  if (signal >= 10) line[size++] = static_cast<char>('0' + signal / 10);
  line[size++] = static_cast<char>('0' + signal % 10);
  line[size++] = '\n';
  static_cast<void>(!::write(STDERR_FILENO, line.data(), size));
}

extern "C" void remove_temporaries_and_end(int signal) {
  for (const PendingPath& pending : pending_paths) {
    if (pending.state == PendingPath::set) ::unlink(pending.path.data());
  }
  if (says_signals && signal != SIGPIPE) say_signal(signal);
  ::raise(signal);  // SA_RESETHAND has restored the default action
}

/// Returns the target of a path, which need not exist yet.
/// @throws Error (output), also for a folder and a circle of links
std::string follow_links(const std::string& path) {
  try {
    const fs::file_status status = fs::status(path);  // rejects circles
    if (fs::is_directory(status)) refuse_output(path, "it is a directory");
    fs::path target = path;
    while (fs::is_symlink(target)) target = target.parent_path() / fs::read_symlink(target);
    return target.string();
  } catch (const fs::filesystem_error& error) {
    refuse_output(path, error.code().message());
  }
}

constexpr std::string_view kPart = ".part-";
constexpr std::size_t kLongestName = 255;   // of a file, in bytes
constexpr std::size_t kLongestSuffix = 26;  // kPart, a process id, 8 digits
constexpr int kMaxEntries = 100'000;        // max entries read in a folder

/// Returns the prefix of temporary names for a path: its own name, shortened to leave room for the suffix.
std::string part_prefix(const fs::path& target) {
  std::string name = target.filename().string();
  if (name.size() > kLongestName - kLongestSuffix) {
    std::size_t end = kLongestName - kLongestSuffix;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // inside a character
    name.resize(end);
  }
  return name + std::string(kPart);
}

std::string part_path(const std::string& target) {
  const fs::path path(target);
  const std::string name = fmt::format("{}{}-{:08x}", part_prefix(path), ::getpid(), std::random_device()());
  return (path.parent_path() / name).string();
}

/// Reads "4711-0123abcd" after the prefix. Returns the process id, or -1 for anything else.
pid_t process_of_part(std::string_view rest) {
  pid_t process = -1;
  const char* const end = rest.data() + rest.size();
  const auto [stop, problem] = std::from_chars(rest.data(), end, process);
  if (problem != std::errc() || process <= 0 || end - stop != 9 || *stop != '-') return -1;
  return std::string_view(stop + 1, 8).find_first_not_of("0123456789abcdef") == std::string_view::npos
             ? process
             : -1;
}

/// Removes a temporary file that no process will finish: its process is dead, and if it belonged to another
/// machine that shares the folder, nobody holds the file's lock. Returns whether it was removed.
bool remove_leftover(const std::string& path, pid_t process) {
  if (::kill(process, 0) == 0 || errno != ESRCH) return false;
  const int file = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status {};
  const bool is_left = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                       status.st_uid == ::geteuid() && ::flock(file, LOCK_EX | LOCK_NB) == 0;
  const bool is_removed = is_left && ::unlink(path.c_str()) == 0;
  ::close(file);
  return is_removed;
}

/// Tells whether this is the first call with a path.
bool is_new(const std::string& path) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  return seen.insert(path).second;
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
    : path_(path), target_(follow_links(path)), name_(part_path(target_)), pending_(remember_path(name_)) {
  try {
    if (is_new(target_)) remove_leftovers();
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
  constexpr mode_t kWritable = S_IWUSR | S_IWGRP | S_IWOTH;
  if (replaces && (old.st_mode & kWritable) == 0)
    refuse_output(path_, "the file is read-only; make it writable (chmod u+w), or name another");
  // Keep the content of a private file unreadable by others at all times.
  file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
  if (file_ < 0) {
    const int reason = errno;
    const fs::path folder = fs::path(target_).parent_path();
    if (reason != EACCES && reason != EPERM && reason != EROFS) refuse_output(path_, std::strerror(reason));
    // The new file is made next to the one it replaces, which may well be writable.
    refuse_output(path_, fmt::format("no file can be created in its folder, {}: {}",
                                     folder.empty() ? "." : folder.string(), std::strerror(reason)));
  }
  is_there_ = true;
  static_cast<void>(::flock(file_, LOCK_EX | LOCK_NB));  // marks the file as in use, if locks are supported
  // File systems without permissions fail here, and have none to preserve.
  if (replaces) static_cast<void>(::fchmod(file_, old.st_mode & 0777));
}

void StagedFile::remove_leftovers() const {
  const fs::path target(target_);
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  const std::string prefix = part_prefix(target);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
  if (!entries) return;  // making the file reports the reason
  for (int i = 0; i < kMaxEntries; ++i) {
    const dirent* entry = ::readdir(entries.get());  // NOLINT(concurrency-mt-unsafe): of its own stream
    if (entry == nullptr) return;
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix)) continue;
    const pid_t process = process_of_part(name.substr(prefix.size()));
    const std::string path = (target.parent_path() / name).string();
    if (process > 0 && remove_leftover(path, process))
      fmt::print(stderr, "dflop: note: removed {}, left by a process that was killed\n", path);
  }
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
  static_cast<void>(::sync_file_range(file_, 0, 0, SYNC_FILE_RANGE_WRITE));  // sync() reports errors
}

void StagedFile::sync() {
  // EINVAL means that the file system has no cached data to lose.
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

void remove_temporaries_on_signals(bool says_so) {
  says_signals = says_so;
  struct sigaction action {};
  action.sa_handler = remove_temporaries_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction usual {};
    ::sigaction(signal, nullptr, &usual);
    if (usual.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // makes write() return EFBIG
}

}  // namespace dflop
