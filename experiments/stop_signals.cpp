#include "experiments/stop_signals.hpp"

#include <ctime>

namespace dflop {
namespace {

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t stop_second = 0;

std::sig_atomic_t monotonic_second() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::sig_atomic_t>(now.tv_sec);
}

/// The first signal asks for the end. Launchers send it to a process and to its group, so that it comes
/// twice; only one that comes seconds later ends the process at once.
void ask_for_end(int signal) {
  if (stop_signal == 0) {
    stop_signal = signal;
    stop_second = monotonic_second();
  } else if (monotonic_second() > stop_second + 1) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

/// Takes a signal over, but one that is ignored, as a shell's jobs in the background do: that stays so.
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
  take_over(SIGINT, interrupt_);
  take_over(SIGTERM, terminate_);
}

StopOnSignals::~StopOnSignals() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
}

int StopOnSignals::signal() const {
  return static_cast<int>(stop_signal);
}

void StopOnSignals::check() const {
  if (signal() != 0) throw Stopped(signal());
}

}  // namespace dflop
