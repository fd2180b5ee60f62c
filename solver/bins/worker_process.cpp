#include "solver/bins/worker_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <mutex>
#include <optional>

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kLookForStop(0.005);
/// A child that computes nothing for so long waits for a lock that another of our threads held at the fork:
/// of an allocator, as the address sanitizer's, that does not care about forks as the C library's does.
constexpr Seconds kStuck(0.25);

bool write_all(int file, const void* data, std::size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(file, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return true;
}

[[noreturn]] void be_child(const std::function<std::vector<double>()>& work, int out, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before that was set
  // The caller's handlers clean up the caller's files.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) {
    std::signal(signal, SIG_DFL);
  }
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
  }
  try {
    const std::vector<double> values = work();
    const std::uint64_t count = values.size();
    if (write_all(out, &count, sizeof(count)) && write_all(out, values.data(), count * sizeof(double)))
      _exit(0);
  } catch (...) {  // like a crash
  }
  _exit(1);
}

/// A Child is a forked process, of which nothing is left afterwards, whatever its parent throws meanwhile.
class Child {
 public:
  explicit Child(const std::function<std::vector<double>()>& work);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool started() const { return pid_ > 0; }
  int in() const { return in_; }
  /// Returns the processor time that it has used.
  Seconds time_used() const;

 private:
  pid_t pid_ = -1;
  int in_ = -1;
};

/// Children are forked one at a time: a child forked between pipe() and close() of another would hold that
/// pipe open.
Child::Child(const std::function<std::vector<double>()>& work) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  in_ = ends[0];
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) be_child(work, ends[1], parent);
  close(ends[1]);
}

Child::~Child() {
  if (started()) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (in_ >= 0) close(in_);
}

Seconds Child::time_used() const {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) return Seconds(0);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// A Reply is what the child has sent so far.
class Reply {
 public:
  bool complete() const { return counted() && !too_long() && bytes_.size() >= expected(); }
  bool too_long() const { return counted() && count() > kMostWorkerValues; }

  /// @return false at the end of the pipe.
  bool read_some(int in) {
    std::array<char, 65536> buffer;
    const ssize_t count = read(in, buffer.data(), buffer.size());
    if (count < 0) return errno == EINTR;
    bytes_.insert(bytes_.end(), buffer.begin(), buffer.begin() + count);
    return count > 0;
  }

  std::vector<double> values() const {
    std::vector<double> values((expected() - sizeof(std::uint64_t)) / sizeof(double));
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + sizeof(std::uint64_t);
    std::copy_n(begin, values.size() * sizeof(double), reinterpret_cast<char*>(values.data()));
    return values;
  }

 private:
  bool counted() const { return bytes_.size() >= sizeof(std::uint64_t); }
  std::uint64_t count() const {
    std::uint64_t count = 0;
    std::copy_n(bytes_.begin(), sizeof(count), reinterpret_cast<char*>(&count));
    return count;
  }
  std::size_t expected() const { return sizeof(std::uint64_t) + count() * sizeof(double); }

  std::vector<char> bytes_;
};

/// @return nothing if the child is stuck.
std::optional<WorkerEnd> receive(const Child& child, Clock::time_point deadline, const std::stop_token& stop,
                                 Reply& message) {
  Clock::time_point looked = Clock::now();
  Seconds used(0);
  while (!message.complete()) {
    if (stop.stop_requested()) return WorkerEnd::stopped;
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return WorkerEnd::late;
    if (now - looked >= kStuck) {
      if (child.time_used() == used) return std::nullopt;
      looked = now;
      used = child.time_used();
    }
    const Seconds wait = std::min<Seconds>(deadline - now, stop.stop_possible() ? kLookForStop : kStuck);
    pollfd ready{child.in(), POLLIN, 0};
    const int found = poll(&ready, 1, static_cast<int>(wait.count() * 1e3) + 1);
    if (found < 0 && errno != EINTR) return WorkerEnd::died;
    if (found > 0 && (!message.read_some(child.in()) || message.too_long())) return WorkerEnd::died;
  }
  return WorkerEnd::done;
}

}  // namespace

WorkerResult run_in_worker(const std::function<std::vector<double>()>& work, Seconds limit,
                           const std::stop_token& stop) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  while (true) {
    const Child child(work);
    if (!child.started()) return {};
    Reply message;
    const std::optional<WorkerEnd> end = receive(child, deadline, stop, message);
    if (end == WorkerEnd::done) return {WorkerEnd::done, message.values()};
    if (end) return {*end, {}};
  }
}

}  // namespace dflop
