// An OutlierDelay regroups the samples of successive batches before they are scheduled, so that samples that
// are too long for a balanced batch run at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dflop {

/// A window has at most this many batches.
inline constexpr int kMaxDelay = 1024;

/// An OutlierDelay has the number of batches within which samples may be moved, and the bins of a batch.
struct OutlierDelay {
  int window = 0;        ///< number of batches; 0 or 1: no sample is moved
  int microbatches = 1;  ///< a batch has microbatches * dp bins, at most its number of samples
  int dp = 1;            ///< dp ranks of the LLM

  bool is_on() const { return window > 1; }
  bool operator==(const OutlierDelay&) const = default;
};

/// A DelayCount counts how far samples have moved.
struct DelayCount {
  std::int64_t samples = 0;   ///< samples that were drawn
  std::int64_t moved = 0;     ///< samples that moved to a different batch
  std::int64_t most = 0;      ///< max distance of one sample in batches, later or earlier
  std::int64_t distance = 0;  ///< total distance of all samples in batches

  double mean() const { return moved > 0 ? static_cast<double>(distance) / static_cast<double>(moved) : 0; }
  bool operator==(const DelayCount&) const = default;
};

/// Regroups a window of batches that were drawn with `batch` samples each. Returns the new order, batch after
/// batch: for each sample the position at which it was drawn.
///
/// An outlier costs more than the mean load of a bin in the window, sum / (batches * bins). So no assignment
/// makes the largest bin of its batch as small as the mean. The outlier makes its microbatch long, and the
/// other dp ranks wait. An outlier that is no larger, in the same microbatch but on a different dp rank,
/// makes the microbatch no longer. Outliers are therefore grouped, one for each dp rank, with outliers of
/// similar cost together, largest first. Each group goes into the batch whose samples cost the least so far.
/// This batch always has a bin without an outlier, because otherwise it would cost more than the mean batch.
/// So a few outliers end up in one batch, and many outliers are spread evenly over the batches. Other samples
/// stay in place, except that a batch with too many samples gives its last ones to the other batches. Ties go
/// to the sample drawn first.
///
/// WLB-LLM (2503.17924) delays documents in queues until there is one for each microbatch. Here a window
/// replaces the queues: the result depends on nothing before the window, so a resumed run gets the same
/// order.
///
/// `costs` has the cost of each sample of a whole number of batches, in any unit; no cost is negative.
std::vector<std::int32_t> delay_outliers(std::span<const double> costs, int batch, const OutlierDelay& delay);

/// Adds the samples of one batch to `count`. `number` is the batch's position in its window, and `drawn` the
/// positions at which its samples were drawn.
void count_moved(std::span<const std::int32_t> drawn, int number, int batch, DelayCount& count);

}  // namespace dflop
