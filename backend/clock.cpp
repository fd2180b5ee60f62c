#include "backend/clock.hpp"

#include <chrono>

namespace dflop {

Nanoseconds host_time() {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point epoch = Clock::now();
  return std::chrono::duration_cast<Nanoseconds>(Clock::now() - epoch);
}

}  // namespace dflop
