// A BatchWindow collects the batches pushed to a session until a window is full, and then moves outliers
// between the window's batches.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/service/outlier_delay.hpp"

namespace dflop {

/// A PushedAt says in which batch, and at which position, a client pushed a sample.
struct PushedAt {
  std::uint64_t iteration = 0;  ///< the batch's iteration
  std::size_t index = 0;        ///< position in the batch

  bool operator==(const PushedAt&) const = default;
};

/// A BatchWindow takes batches one by one and returns them one window at a time. If outliers are not delayed,
/// each batch is a window.
class BatchWindow {
 public:
  explicit BatchWindow(const OutlierDelay& delay) : delay_(delay) {}

  /// Returns the required number of samples in the next batch, because all batches of a window have the same
  /// size. Returns 0 if any size is allowed.
  std::size_t size() const { return costs_.empty() ? 0 : batch_; }

  /// Returns the iteration of the window's first batch.
  std::uint64_t first() const { return first_; }

  /// Returns the number of batches in the window.
  std::size_t batches() const { return held_; }

  /// Adds a batch, given the costs of its samples. Returns whether the window is complete: it has as many
  /// batches as the delay sets, or `is_last`.
  bool add(const std::vector<double>& costs, bool is_last);

  /// Empties the window and returns its batches after regrouping, ready to be scheduled.
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
