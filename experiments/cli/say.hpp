// Standard error is where people are told things: notes, errors and how far long work is.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace dflop {

/// Returns `text` as one line without control characters, which names of files and keys may hold.
std::string printable(std::string text);

/// Writes to standard error. Where that cannot be written, as on a terminal that has gone, nothing is said
/// and nothing ends; the exit status still tells.
void say_text(const std::string& text) noexcept;

/// Writes as say_text() what this process has not said so yet: a sweep meets the same data again and again.
void say_once(const std::string& text);

/// Writes what fmt::format() makes of the arguments.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// A Progress is a bar on standard error for work that takes more than two seconds, on terminals only. Of
/// those that live at once the first draws: work inside other work, and beside it on other threads, has no
/// bar of its own.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();  ///< clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Draws at most ten times a second.
  void update(std::int64_t done, std::int64_t total);

  /// Writes a line to standard error, terminal or not, above the bar.
  void note(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  bool first_;  ///< of those that live now
  bool visible_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace dflop
