// A progress bar on standard error for work that takes more than two seconds, on terminals only. Of those
// that live at once the first draws: work inside other work, and beside it on other threads, has no bar of
// its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dflop {

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
  bool first_;  ///< of those that live
  bool visible_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace dflop
