// This file lets signals from the user stop long live runs after the current step.
#pragma once

#include <array>
#include <csignal>
#include <stdexcept>
#include <string>

namespace dflop {

/// A Stopped is thrown in a measurement to stop it after a signal.
class Stopped final : public std::runtime_error {
 public:
  explicit Stopped(int signal)
      : std::runtime_error("stopped by signal " + std::to_string(signal)), signal_(signal) {}
  /// Returns the exit code of the process: 128 plus the signal's number, as shells do.
  int exit_code() const { return 128 + signal_; }

 private:
  int signal_;
};

/// While a StopOnSignals exists, SIGINT, SIGTERM and SIGHUP (a closed terminal) are recorded and do not end
/// the process. A second signal, some seconds after the first, ends the process at once. Output to a closed
/// pipe is dropped and does not end the process. Such a pipe occurs if `tee` is closed with its terminal.
/// Only one StopOnSignals may exist at a time.
class StopOnSignals {
 public:
  StopOnSignals();
  ~StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

  /// Returns the first signal that was received; 0 if there was none.
  int signal() const;
  /// Stops a measurement after a signal. @throws Stopped if a signal was received
  void check() const;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

  std::array<struct sigaction, kSignals.size()> before_ = {};
  struct sigaction pipe_before_ = {};
};

}  // namespace dflop
