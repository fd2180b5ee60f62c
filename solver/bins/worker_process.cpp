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
#include <string>
#include <string_view>

#include "core/support/bytes.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kLookForStop(0.005);
/// A child that makes no progress for this long waits for a lock that another thread of its parent held at
/// the fork. This happens with allocators that, unlike the C library's, do not handle forks, such as the
/// address sanitizer's.
constexpr Seconds kStuck(0.25);

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

[[noreturn]] void be_child(const std::function<std::vector<double>()>& work, int out, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before that was set
  // The caller's signal handlers would clean up the caller's files.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) {
    std::signal(signal, SIG_DFL);
  }
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
  }
  try {
    ByteWriter message;
    message.add(work());
    if (write_all(out, message.take())) _exit(0);
  } catch (...) {  // treat like a crash
  }
  _exit(1);
}

/// A Child is a forked process that is always cleaned up, whatever its parent throws.
class Child {
 public:
  /// Children are forked one at a time. A child that is forked between pipe() and close() of another child
  /// would keep the other child's pipe open.
  explicit Child(const std::function<std::vector<double>()>& work) {
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

  ~Child() {
    if (started()) {
      kill(pid_, SIGKILL);
      while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (in_ >= 0) close(in_);
  }

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool started() const { return pid_ > 0; }
  int in() const { return in_; }

  /// Returns the processor time that the child has used.
  Seconds time_used() const {
    clockid_t clock{};
    timespec used{};
    if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) return Seconds(0);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
};

/// Returns the number of values that the child announces; nullopt until this number has arrived. A reply is a
/// vector of doubles as written by ByteWriter.
std::optional<std::uint64_t> count_of(const std::string& reply) {
  if (reply.size() < sizeof(std::uint64_t)) return std::nullopt;
  return ByteReader(reply).get<std::uint64_t>();
}

/// Reads a part of the reply.
/// @return false at the end of the pipe.
bool read_some(int in, std::string& reply) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(in, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  reply.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

/// Reads the reply until the child is done, late, stopped or has died.
/// @return nullopt if the child is stuck.
std::optional<WorkerEnd> receive(const Child& child, Clock::time_point deadline, const std::stop_token& stop,
                                 std::string& reply) {
  Clock::time_point looked = Clock::now();
  Seconds used(0);
  while (true) {
    const std::optional<std::uint64_t> count = count_of(reply);
    if (count && *count > kMaxWorkerValues) return WorkerEnd::died;
    if (count && reply.size() >= sizeof(*count) + *count * sizeof(double)) return WorkerEnd::done;
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
    if (found > 0 && !read_some(child.in(), reply)) return WorkerEnd::died;
  }
}

}  // namespace

WorkerResult run_in_worker(const std::function<std::vector<double>()>& work, Seconds limit,
                           const std::stop_token& stop) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  while (true) {
    const Child child(work);
    if (!child.started()) return {};
    std::string reply;
    const std::optional<WorkerEnd> end = receive(child, deadline, stop, reply);
    if (end == WorkerEnd::done) return {WorkerEnd::done, ByteReader(reply).get_all<double>()};
    if (end) return {*end, {}};
  }
}

}  // namespace dflop
