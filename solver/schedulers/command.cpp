#include "solver/schedulers/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/refuse.hpp"
#include "core/support/clock.hpp"
#include "solver/schedulers/methods.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

extern char** environ;

namespace dflop {
namespace {

/// An answer has at most this many bytes: a bin takes few, and a batch has at most 65,536 samples.
constexpr std::size_t kLongestAnswer = std::size_t{16} << 20;
/// A process gets this long to end by itself after its last request.
constexpr Seconds kTimeToEnd{1};

/// A CommandProcess is the user's process, from its start to its end.
class CommandProcess {
 public:
  explicit CommandProcess(const std::string& command) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail(errno);
    ours_ = ends[0];
    fcntl(ours_, F_SETFL, O_NONBLOCK);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // for ending all that the shell starts
    std::string text = command;
    std::string shell = "sh";
    std::string option = "-c";
    std::array<char*, 4> arguments = {shell.data(), option.data(), text.data(), nullptr};
    const int error = posix_spawn(&pid_, "/bin/sh", &actions, &attributes, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (error == 0) return;
    pid_ = -1;
    close(ours_);
    fail(error);
  }

  ~CommandProcess() {
    close(ours_);
    const Stopwatch watch;
    while (pid_ > 0 && watch.elapsed() < kTimeToEnd) {
      if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  CommandProcess(const CommandProcess&) = delete;
  CommandProcess& operator=(const CommandProcess&) = delete;

  /// Sends a line and returns the answer's, both without their line ends. @throws Error (input) as the method
  std::string ask(const std::string& request, Seconds timeout) {
    if (!in_.empty())
      refuse_input("", "expected one line for each request, found more (messages go to standard error)");
    const Stopwatch watch;
    std::string out = request + '\n';
    std::size_t sent = 0;
    while (true) {
      if (const auto end = in_.find('\n'); end != std::string::npos && sent == out.size()) {
        std::string line = in_.substr(0, end);
        in_.erase(0, end + 1);
        return line;
      }
      if (in_.size() > kLongestAnswer)
        refuse_input("", "expected an answer of one line of at most {} bytes, found none", kLongestAnswer);
      const Seconds left = timeout - watch.elapsed();
      if (left.count() <= 0) {
        end_now();
        refuse_input("", "expected an answer within {:g} s, found none; the process was ended",
                     timeout.count());
      }
      pollfd ready{ours_, static_cast<short>(POLLIN | (sent < out.size() ? POLLOUT : 0)), 0};
      const int wait_ms = static_cast<int>(std::clamp(left.count() * 1e3, 1.0, 1e6));
      if (poll(&ready, 1, wait_ms) < 0 && errno != EINTR) fail(errno);
      if ((ready.revents & POLLIN) != 0) {
        if (!receive()) refuse_input("", "it ended {} before it answered", end_of_process());
      } else if ((ready.revents & POLLOUT) != 0) {
        const ssize_t count = send(ours_, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
        if (count > 0) sent += static_cast<std::size_t>(count);
        if (count < 0 && errno != EAGAIN && errno != EINTR)
          refuse_input("", "it ended {} before it read the request", end_of_process());
      } else if ((ready.revents & (POLLHUP | POLLERR)) != 0) {
        refuse_input("", "it ended {} before it answered", end_of_process());
      }
    }
  }

 private:
  [[noreturn]] static void fail(int error) { refuse_input("", "cannot be run: {}", std::strerror(error)); }

  /// Receives a part of the answer.
  /// @return false at the end of the process's output
  bool receive() {
    std::array<char, 65536> buffer;
    const ssize_t count = recv(ours_, buffer.data(), buffer.size(), 0);
    if (count > 0) in_.append(buffer.data(), static_cast<std::size_t>(count));
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }

  void end_now() {
    if (pid_ > 0) kill(-pid_, SIGKILL);
  }

  /// Ends the process if it has not ended. Returns, for example, "with exit code 1".
  std::string end_of_process() {
    const Stopwatch watch;
    int status = 0;
    pid_t ended = 0;
    while (ended == 0 && watch.elapsed() < kTimeToEnd) {
      ended = waitpid(pid_, &status, WNOHANG);
      if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (ended != pid_) return "its output";
    pid_ = -1;
    return WIFEXITED(status) ? fmt::format("with exit code {}", WEXITSTATUS(status))
                             : fmt::format("by signal {}", WTERMSIG(status));
  }

  pid_t pid_ = -1;
  int ours_ = -1;
  std::string in_;
};

struct SchedulerCommand {
  std::mutex mutex;
  std::string command;
  Seconds timeout = kCommandTimeout;
  std::unique_ptr<CommandProcess> process;
};

/// Returns the only SchedulerCommand of this process. It is never destroyed, because schedulers that a
/// service has abandoned may use it until the process ends.
SchedulerCommand& scheduler_command() {
  static SchedulerCommand& one = *new SchedulerCommand;
  return one;
}

std::string request_line(const BinProblem& problem, const SolveLimits& limits) {
  std::string text = fmt::format(
      R"({{"schema":"dflop.schedule_request","version":1,"iteration":{},"seed":{},"bins":{},"microbatches":{},"dp":{},"shared_encoder":{},"items":[)",
      limits.stream, limits.seed, problem.bins, problem.microbatches(), problem.dp, problem.shared_encoder);
  for (std::size_t i = 0; i < problem.items(); ++i) {
    text += i == 0 ? "{\"id\":" : ",{\"id\":";
    append_json_string(text, i < problem.names.size() ? problem.names[i] : std::to_string(i));
    text += fmt::format(R"(,"encoder_s":{},"llm_s":{}}})", problem.encoder_s[i], problem.llm_s[i]);
  }
  text += "],\"caps\":[";
  for (std::size_t c = 0; c < problem.caps.size(); ++c) {
    const Cap& cap = problem.caps[c];
    text += c == 0 ? "{\"what\":" : ",{\"what\":";
    append_json_string(text, cap.what);
    text += fmt::format(R"(,"most":{},"window":{},"of_microbatch":{},"weight":[{}]}})", cap.most,
                        problem.window(cap), cap.of_microbatch, fmt::join(cap.weight, ","));
  }
  return text + "]}";
}

std::vector<std::int32_t> read_answer(const std::string& line, std::uint64_t iteration,
                                      const BinProblem& problem) {
  const JsonDocument document(line, "answer");
  const JsonValue root = document.root();
  if (root.has("error")) refuse_input("", "it answers with an error: {}", root.at("error").string());
  root.require_keys({"bins"}, {"iteration"});
  if (root.has("iteration") && root.at("iteration").unsigned_integer() != iteration)
    root.at("iteration").refuse("expected an answer for iteration {}", iteration);
  const JsonValue bins = root.at("bins");
  const std::vector<std::int64_t> found = bins.integers(0, problem.bins - 1);
  if (found.size() != problem.items())
    bins.refuse("expected a bin for each of {} items, found {}", problem.items(), found.size());
  std::vector<std::int32_t> bin(found.begin(), found.end());
  std::vector<bool> filled(static_cast<std::size_t>(problem.bins), false);
  for (const std::int32_t b : bin) filled[static_cast<std::size_t>(b)] = true;
  const auto empty = std::find(filled.begin(), filled.end(), false);
  if (empty != filled.end() && !problem.allow_empty)
    bins.refuse("expected items in every bin, found none in bin {}", empty - filled.begin());
  return bin;
}

AssignmentSolution ask_command(const BinProblem& problem, const SolveLimits& limits) {
  SchedulerCommand& user = scheduler_command();
  const std::lock_guard lock(user.mutex);
  try {
    if (!user.process) user.process = std::make_unique<CommandProcess>(user.command);
    AssignmentSolution solution;
    solution.bin =
        read_answer(user.process->ask(request_line(problem, limits), user.timeout), limits.stream, problem);
    solution.bound = Seconds(lower_bound(problem));
    return solution;
  } catch (const Error& error) {
    user.process.reset();
    const std::string place = error.context().empty() ? "" : error.context() + ": ";
    throw Error(ErrorKind::input, fmt::format("iteration {}: {}{}", limits.stream, place, error.message()),
                fmt::format("scheduler command '{}'", user.command));
  }
}

}  // namespace

void use_scheduler_command(const std::string& command, Seconds timeout) {
  SchedulerCommand& user = scheduler_command();
  if (command.empty()) throw Error(ErrorKind::usage, "expected a command that schedules, found an empty one");
  register_method({.name = kCommandMethod,
                   .objective = Objective::published,
                   .budget = Budget::none,
                   .minimizes = false,
                   .find_bins = ask_command});
  user.command = command;
  user.timeout = timeout;
}

void drop_scheduler_command() {
  unregister_method(kCommandMethod);
  scheduler_command().process.reset();
}

}  // namespace dflop
