// Long live runs end where the user asks for it, after the step that is under way.
#pragma once

#include <array>
#include <csignal>
#include <stdexcept>
#include <string>

namespace dflop {

/// A Stopped ends what is being measured, from inside, when a signal has come.
class Stopped final : public std::runtime_error {
 public:
  explicit Stopped(int signal)
      : std::runtime_error("stopped by signal " + std::to_string(signal)), signal_(signal) {}
  /// Returns the exit code of the process, as shells have it.
  int exit_code() const { return 128 + signal_; }

 private:
  int signal_;
};

/// While a StopOnSignals lives, SIGINT, SIGTERM and SIGHUP, which comes when a terminal goes, are noted and
/// do not end the process. One that comes seconds after the first ends it at once. What nobody reads any
/// more, as when `tee` has gone with its terminal, is not said, and ends nothing either. There may be one at
/// a time.
class StopOnSignals {
 public:
  StopOnSignals();
  ~StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

  /// Returns the first signal that came; 0 where none has.
  int signal() const;
  /// Ends what is being measured. @throws Stopped where one has come
  void check() const;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

  std::array<struct sigaction, kSignals.size()> before_ = {};
  struct sigaction pipe_before_ = {};
};

}  // namespace dflop
