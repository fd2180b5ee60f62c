#include "experiments/cli/stop_signals.hpp"

#include <atomic>
#include <ctime>

namespace dflop {
namespace {

// The thread that receives a signal writes these, and others read them.
std::atomic<int> stop_signal = 0;
std::atomic<std::time_t> stop_second = 0;  // of the first signal; 0 is when the machine started
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::time_t>::is_always_lock_free);

std::time_t monotonic_second() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

/// Handles a signal. The first one requests an orderly end. Launchers signal both a process and its group, so
/// the signal may arrive twice; only a signal that comes seconds later ends the process at once.
void ask_for_end(int signal) {
  const std::time_t now = monotonic_second();
  std::time_t first = 0;
  if (stop_second.compare_exchange_strong(first, now)) {
    stop_signal = signal;
  } else if (now > first + 1) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

/// Installs the handler for a signal, except if the signal is ignored, as for background jobs of a shell and
/// under nohup.
void take_over(int signal, struct sigaction& before) {
  ::sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = ask_for_end;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopOnSignals::StopOnSignals() {
  stop_signal = 0;
  stop_second = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) take_over(kSignals[i], before_[i]);
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &pipe_before_);
}

StopOnSignals::~StopOnSignals() {
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

int StopOnSignals::signal() const {
  return stop_signal;
}

void StopOnSignals::check() const {
  if (signal() != 0) throw Stopped(signal());
}

}  // namespace dflop
