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
      const std::size_t room = kMostLineBytes + 1 - std::min(line.size(), kMostLineBytes + 1);
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
      .summary = "answer scheduling requests, one line of JSON each",
      .description =
          R"(Reads requests from standard input and writes answers to standard output, one line of JSON each,
until standard input ends: a training loop in another language starts it as a child process. The first line is
{"dflop": VERSION, "protocol": 1}. A request is {"id": 7, "method": "partition", "params": {...}}; its answer
has the same id, a string or a whole number, and either "result" or "error": {"kind", "message"}. Costs of all
items are in the same unit, such as seconds, from 0 to 1e9; tokens are from 0 to 1e12. Methods:
  partition  {"llm": [costs], "encoder": [costs], "tokens": [...], "bins": M, "dp": D, "encoder_dp": E,
             "objective": "bins", "token_cap": N, "allow_empty": false, "method": "local-search", "seed": 1,
             "stream": 0, "steps": N, "time_limit_s": S}; only llm and bins are required
             -> {"bins": [the bin of each item], "objective", "value", "bound", "status", "reason"}
  open       {"bins", "dp", "encoder_dp", "objective", "token_cap"} as in partition, or {"plan": FILE or
             the content of a plan file, "program": false, "profile": FILE}; and "method" (auto), "seed",
             "live" (false: same result on every machine), "depth" (1), "steps", "delay_outliers" (0)
             -> {"session": 1} and, if requested, a "program" with the plan's ranks and stages
  push       {"session": 1, "batch": {"llm": [costs], "encoder", "tokens", "stream"}}, or for a plan
             {"samples": [as in schedule files], "stream"}: a batch to schedule while others are trained
             -> {"iteration": 0}. With "delay_outliers": K, push K batches, or the batches up to one with
             "ends_window": true, before the first next; samples then change batches
  next       {"session": 1} -> the next iteration, as in partition, with "iteration", "events",
             "scheduling_s", "waited_s" and, if requested, "program", as in simulate --program-out;
             with "delay_outliers" also "pushed_at", the [iteration, index] at which each sample was pushed
  close      {"session": 1} -> {}
  ping       {} -> {}
A live session answers at once with the best result found so far. Limits: 64 MiB per line, 65,536 items per
batch, 64 open sessions, 2,048 batches of a session that wait for next, and 4,194,304 items in 256 MiB of
requests over all sessions. A request beyond a limit fails with kind "input", and so does a plan or profile
that is not a regular file. If partitions of more than 64 MiB are waiting, the next request is read later.)",
      .example = "dflop serve < traces/items/requests.jsonl",
      .run = run_serve,
      .has_format = false,
  };
}

}  // namespace dflop
