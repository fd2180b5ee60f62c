// A BatchWindow holds back the batches pushed to a session until a window is full, and then regroups the
// window's outliers.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/service/outlier_delay.hpp"

namespace dflop {

/// A PushedAt is the position of a sample among the batches that a client pushed.
struct PushedAt {
  std::uint64_t iteration = 0;  ///< the batch's iteration
  std::size_t index = 0;        ///< position in the batch

  bool operator==(const PushedAt&) const = default;
};

/// A BatchWindow takes batches one by one and returns them one window at a time. Without a delay each batch
/// is a window.
class BatchWindow {
 public:
  explicit BatchWindow(const OutlierDelay& delay) : delay_(delay) {}

  /// Returns the number of samples that the next batch must have, which is equal within a window; 0: any.
  std::size_t size() const { return costs_.empty() ? 0 : batch_; }

  /// Returns the iteration of the window's first batch.
  std::uint64_t first() const { return first_; }

  /// Returns how many batches the window has.
  std::size_t batches() const { return held_; }

  /// Adds a batch, given the costs of its samples, and returns whether the window is full: it has as many
  /// batches as the delay says, or this is its last one.
  bool add(const std::vector<double>& costs, bool is_last);

  /// Empties the window, and returns its batches as they should be scheduled.
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
