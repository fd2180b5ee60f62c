// dflop serve answers requests for schedules from a process that trains.
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

/// Writes a line at once. Where it cannot be written, requests that follow could not be answered, either.
void write_answer(const std::string& line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
                       std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  if (written) return;
  say("dflop: error: standard output: {}\n", std::generic_category().message(errno));
  std::_Exit(Error(ErrorKind::output, "").exit_code());
}

/// Ends the process when nobody is left to read its answers, whatever is under way.
void watch_reader() {
  std::thread([] {
    pollfd out{STDOUT_FILENO, 0, 0};
    while (poll(&out, 1, -1) < 0 || (out.revents & (POLLERR | POLLNVAL)) == 0) {
      if (out.revents != 0) return;  // as of a terminal that was closed
    }
    std::_Exit(1);
  }).detach();
}

/// A LineReader reads standard input. Of a line that is too long it keeps no more than tells so.
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
  /// Reads what comes next; returns whether anything did.
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
  std::size_t at_ = 0;  // of what has not been returned
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
      .summary = "answer requests for schedules, a line of JSON each",
      .description =
          R"(Reads requests from standard input and writes answers to standard output, a line of JSON each, until there are
no more requests: a training loop in another language starts it as a child process. The first line is
{"dflop": VERSION, "protocol": 1}. A request is {"id": 7, "method": "partition", "params": {...}}; its answer
has its id, a string or a whole number, and either "result" or "error": {"kind", "message"}. Costs are in one unit
of all items, as seconds, from 0 to 1e9, tokens from 0 to 1e12. Methods:
  partition  {"llm": [costs], "encoder": [costs], "tokens": [...], "bins": M, "dp": D, "encoder_dp": E,
             "objective": "bins", "token_cap": N, "allow_empty": false, "method": "local-search", "seed": 1,
             "stream": 0, "steps": N, "time_limit_s": S}; all but llm and bins may be left out
             -> {"bins": [the bin of each item], "objective", "value", "bound", "status", "reason"}
  open       {"bins", "dp", "encoder_dp", "objective", "token_cap"} as of partition, or {"plan": FILE or what it
             holds, "program": false, "profile": FILE}, and "method" (auto), "seed", "live" (false: the same on
             every machine), "depth" (1), "steps", "delay_outliers" (0)
             -> {"session": 1} and, where it was asked for, a "program" that has the plan's ranks and stages
  push       {"session": 1, "batch": {"llm": [costs], "encoder", "tokens", "stream"}}, or of a plan {"samples": [as in
             files of schedules], "stream"}: a batch to be scheduled while others are trained -> {"iteration": 0}.
             With "delay_outliers": K all of K batches, or those up to one with "ends_window": true, are pushed
             before the first of them is asked for; samples then change batches
  next       {"session": 1} -> the next iteration as of partition, with "iteration", "events",
             "scheduling_s", "waited_s" and, where it was asked for, "program", as of simulate --program-out;
             with "delay_outliers" also "pushed_at", the [iteration, index] under which each sample was pushed
  close      {"session": 1} -> {}
  ping       {} -> {}
A live session answers at once with the best that was found so far.
A line has at most 64 MiB, a batch 65,536 items; 64 sessions may be open, 2,048 batches of a session may wait for next, and
of all sessions 4,194,304 items, in requests of 256 MiB. What is beyond is refused by kind "input", and a plan or profile that is
no regular file. Where partitions of more than 64 MiB wait the next request is read later.)",
      .example = "dflop serve < traces/items/requests.jsonl",
      .run = run_serve,
      .has_format = false,
  };
}

}  // namespace dflop
