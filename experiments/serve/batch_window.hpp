// A BatchWindow holds what is pushed to a session back until a window of it is there, whose outliers are then
// brought together.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/service/outlier_delay.hpp"

namespace dflop {

/// A PushedAt is where a sample was in what a client pushed.
struct PushedAt {
  std::uint64_t iteration = 0;  ///< of its batch
  std::size_t index = 0;        ///< in its batch

  bool operator==(const PushedAt&) const = default;
};

/// A BatchWindow takes batches one after the other and gives them back a window at a time. Without a delay
/// each batch is a window.
class BatchWindow {
 public:
  explicit BatchWindow(const OutlierDelay& delay) : delay_(delay) {}

  /// Returns the number of samples that the next batch must have, as those of its window; 0: any.
  std::size_t size() const { return costs_.empty() ? 0 : batch_; }

  /// Returns the iteration of the window's first batch.
  std::uint64_t first() const { return first_; }

  /// Returns how many batches the window has.
  std::size_t batches() const { return held_; }

  /// Adds a batch by what its samples cost, and returns whether the window is full: it has as many batches as
  /// the delay says, or this is its last one.
  bool add(const std::vector<double>& costs, bool is_last);

  /// Empties the window, and returns its batches as they are to be scheduled.
  std::vector<std::vector<PushedAt>> take();

  bool is_on() const { return delay_.is_on(); }
  int window() const { return delay_.window; }

 private:
  OutlierDelay delay_;
  std::uint64_t first_ = 0;
  std::size_t held_ = 0;
  std::size_t batch_ = 0;
  std::vector<double> costs_;
};

}  // namespace dflop
