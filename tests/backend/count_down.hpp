// A CountDown releases waiting ranks if a rank fails before it reaches the point that they wait for.
#pragma once

#include <latch>
#include <utility>

namespace dflop::testing {

/// A CountDown counts a latch down once: when its rank calls it, or else in its destructor, also after an
/// exception.
class CountDown {
 public:
  explicit CountDown(std::latch& latch) : latch_(latch) {}
  ~CountDown() { now(); }
  CountDown(const CountDown&) = delete;
  CountDown& operator=(const CountDown&) = delete;

  void now() {
    if (!std::exchange(done_, true)) latch_.count_down();
  }

 private:
  std::latch& latch_;
  bool done_ = false;
};

}  // namespace dflop::testing
