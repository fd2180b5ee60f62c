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

  /// Returns the number of samples that the next batch must have, because all batches of a window are equal
  /// in size; 0: any.
  std::size_t size() const { return costs_.empty() ? 0 : batch_; }

  /// Returns the iteration of the window's first batch.
  std::uint64_t first() const { return first_; }

  /// Returns the number of batches in the window.
  std::size_t batches() const { return held_; }

  /// Adds a batch, given the costs of its samples. Returns whether the window is full: it has the number of
  /// batches set by the delay, or this batch `is_last`.
  bool add(const std::vector<double>& costs, bool is_last);

  /// Empties the window, and returns the batches to schedule: the samples of the window, with outliers
  /// regrouped.
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
