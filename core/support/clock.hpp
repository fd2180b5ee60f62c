// All measurements on the host use this clock.
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "core/units.hpp"

namespace dflop {

/// Returns the time since the first call in this process. The clock is monotonic and the same for all
/// threads.
inline Nanoseconds host_time() {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point epoch = Clock::now();
  return std::chrono::duration_cast<Nanoseconds>(Clock::now() - epoch);
}

/// A Stopwatch measures the time since it was created.
class Stopwatch {
 public:
  Seconds elapsed() const { return std::chrono::steady_clock::now() - start_; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Returns a duration formatted for messages: "61 s", "0.25 s".
inline std::string in_seconds(Seconds duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f s", duration.count() < 10 ? 2 : 0, duration.count());
  return text.data();
}

}  // namespace dflop
