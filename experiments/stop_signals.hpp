// Long live runs end where the user asks for it, after the step that is under way.
#pragma once

#include <csignal>

namespace dflop {

/// While it lives, SIGINT and SIGTERM are noted and do not end the process. One that comes seconds after the
/// first ends it at once. One at a time.
class StopOnSignals {
 public:
  StopOnSignals();
  ~StopOnSignals();
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

  /// The first signal that came; 0 where none has.
  int signal() const;

 private:
  struct sigaction interrupt_ {};
  struct sigaction terminate_ {};
};

}  // namespace dflop
