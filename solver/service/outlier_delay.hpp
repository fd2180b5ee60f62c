// An OutlierDelay regroups the samples of successive batches before they are scheduled, so that samples that
// are too long for a balanced batch run at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dflop {

/// A window has at most this many batches.
inline constexpr int kMaxDelay = 1024;

/// An OutlierDelay says within how many batches samples may be moved, and into which bins a batch is divided.
struct OutlierDelay {
  int window = 0;        ///< in batches; 0 or 1: no sample is moved
  int microbatches = 1;  ///< bins of a batch = microbatches x dp, at most its number of samples
  int dp = 1;            ///< dp ranks of the LLM

  bool is_on() const { return window > 1; }
  bool operator==(const OutlierDelay&) const = default;
};

/// A DelayCount counts how far samples have moved.
struct DelayCount {
  std::int64_t samples = 0;  ///< samples that were drawn
  std::int64_t moved = 0;  ///< of these, samples moved to another batch than the one in which they were drawn
  std::int64_t most = 0;   ///< max distance of one sample in batches, later or earlier
  std::int64_t distance = 0;  ///< total distance of all samples in batches

  double mean() const { return moved > 0 ? static_cast<double>(distance) / static_cast<double>(moved) : 0; }
  bool operator==(const DelayCount&) const = default;
};

/// Regroups a window of batches that were drawn with `batch` samples each. Returns, batch after batch, the
/// position at which each sample was drawn.
///
/// An outlier costs more than the mean load of a bin of the window, sum / (batches x bins), so no assignment
/// makes its batch's largest bin as small as the mean. It makes its microbatch long, and others wait for it.
/// One more outlier in the same microbatch, on another dp rank, makes it no longer. Outliers are therefore
/// grouped, one for each dp rank, with outliers of similar cost together, largest first. Each group goes into
/// the batch whose samples cost the least so far. That batch never already has an outlier for each bin,
/// because then it would cost more than the mean batch. So a few outliers end up in one batch, and many leave
/// batches balanced. Other samples stay in place, except that a batch with too many samples gives its last
/// ones to the other batches. Ties go to the sample drawn first.
///
/// WLB-LLM (2503.17924) delays documents in queues until there is one for each microbatch. Here a window
/// replaces the queues: the result depends on nothing before the window, so a resumed run gets the same
/// order.
///
/// `costs` are for a whole number of batches, in any one unit, none of them negative.
std::vector<std::int32_t> delay_outliers(std::span<const double> costs, int batch, const OutlierDelay& delay);

/// Counts the samples of a batch, the `number`-th of its window; `drawn` are the positions at which they were
/// drawn.
void count_moved(std::span<const std::int32_t> drawn, int number, int batch, DelayCount& count);

}  // namespace dflop
