// A CountDown ends the waiting for a rank that fails before it comes to where others wait for it.
#pragma once

#include <latch>
#include <utility>

namespace dflop::testing {

/// A CountDown counts a latch down once: where its rank says so, else where it ends, also by an exception.
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
