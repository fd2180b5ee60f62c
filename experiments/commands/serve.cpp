// dflop serve answers requests for schedules from a training process.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "core/error.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/serve/server.hpp"

namespace dflop {
namespace {

/// Writes a line and flushes it. A failure ends the command, because later answers could not be written
/// either.
void write_answer(const std::string& line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
                       std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  if (written) return;
  say("dflop: error: standard output: {}\n", std::generic_category().message(errno));
  std::_Exit(Error(ErrorKind::output, "").exit_code());
}

/// Ends the process, whatever it is doing, when the reader of its answers is gone.
void watch_reader() {
  std::thread([] {
    pollfd out{STDOUT_FILENO, 0, 0};
    while (poll(&out, 1, -1) < 0 || (out.revents & (POLLERR | POLLNVAL)) == 0) {
      if (out.revents != 0) return;  // the pipe or terminal was closed
    }
    std::_Exit(1);
  }).detach();
}

/// A LineReader reads standard input line by line. It keeps at most one byte more than the maximum line
/// length, enough to see that a line is too long.
class LineReader {
 public:
  std::optional<std::string> next() {
    std::string line;
    while (true) {
      const std::size_t end = bytes_.find('\n', at_);
      const std::size_t room = kMaxLineBytes + 1 - std::min(line.size(), kMaxLineBytes + 1);
      line.append(bytes_, at_, std::min(room, std::min(end, bytes_.size()) - at_));
      if (end != std::string::npos) {
        at_ = end + 1;
        return line;
      }
      at_ = 0;
      if (!fill()) return line.empty() ? std::nullopt : std::optional(std::move(line));
    }
  }

 private:
  /// Reads the next bytes; returns whether there were any.
  bool fill() {
    bytes_.resize(kPiece);
    ssize_t got = 0;
    do {
      got = ::read(STDIN_FILENO, bytes_.data(), bytes_.size());
    } while (got < 0 && errno == EINTR);
    bytes_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return got > 0;
  }

  static constexpr std::size_t kPiece = 1 << 16;
  std::string bytes_;
  std::size_t at_ = 0;  // start of the bytes that have not been returned
};

int run_serve(const Values&) {
  watch_reader();
  LineReader lines;
  serve([&lines] { return lines.next(); }, write_answer);
  return 0;
}

}  // namespace

Command serve_command() {
  return {
      .name = "serve",
      .task = Task::tools,
      .summary = "answer scheduling requests, one line of JSON each",
      .description =
          R"(Reads requests from standard input and writes answers to standard output, one line of JSON each,
until standard input ends: a training loop in another language starts it as a child process. Requests partition
items into bins, or open a session of a plan, push batches to it and take their schedules. docs/serve.md
describes the requests and their limits.)",
      .example = "dflop serve < traces/items/requests.jsonl",
      .run = run_serve,
      .has_format = false,
  };
}

}  // namespace dflop
