// These functions print notes, errors and progress to standard error.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace dflop {

/// Returns `text` as one line without control characters. Names of files and keys may contain them.
std::string printable(std::string text);

/// Writes to standard error. Ignores a failure to write, such as to a closed terminal, because the exit
/// status still reports the outcome.
void say_text(const std::string& text) noexcept;

/// Like say_text(), but writes each text only once per process, because a sweep reads the same data many
/// times.
void say_once(const std::string& text);

/// Formats the arguments like fmt::format() and writes the text.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// A Progress is a progress bar on standard error, for work that takes more than two seconds. It is shown
/// only on terminals. If several exist at the same time, only the first draws a bar, so nested and concurrent
/// work has none.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();  ///< clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Draws at most ten times a second.
  void update(std::int64_t done, std::int64_t total);

  /// Writes a line to standard error, above the bar if there is one, even without a terminal.
  void note(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  bool first_;  ///< whether no other Progress existed when it was made
  bool visible_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace dflop
