// An OutlierDelay regroups the samples of successive batches before they are scheduled, so that those that
// are too long for a balanced batch run beside each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dflop {

/// A window has at most so many batches.
inline constexpr int kMostDelay = 1024;

/// An OutlierDelay says within how many batches samples may be held back, and what a batch is dealt to.
struct OutlierDelay {
  int window = 0;        ///< batches; 0 or 1: none is held back
  int microbatches = 1;  ///< bins of a batch = microbatches x dp, no more than it has samples
  int dp = 1;            ///< ranks of the LLM that run beside each other

  bool is_on() const { return window > 1; }
  bool operator==(const OutlierDelay&) const = default;
};

/// A DelayCount is how far samples have moved.
struct DelayCount {
  std::int64_t samples = 0;   ///< that were drawn
  std::int64_t moved = 0;     ///< of these, to another batch than that in which they were drawn
  std::int64_t most = 0;      ///< batches, of one sample, later or earlier
  std::int64_t distance = 0;  ///< batches, of all samples together

  double mean() const { return moved > 0 ? static_cast<double>(distance) / static_cast<double>(moved) : 0; }
  bool operator==(const DelayCount&) const = default;
};

/// Regroups a window of batches that were drawn with `batch` samples each. Returns, batch after batch, the
/// position at which each sample was drawn.
///
/// An outlier costs more than the mean load of a bin of the window, sum / (batches x bins): no assignment
/// makes its batch's largest bin as small as the mean. So it makes its microbatch long, for which others
/// wait; one more outlier in that microbatch, on another dp rank, makes it no longer. Outliers therefore go
/// in groups of one for each dp rank, each of those that are nearest in cost, largest first. A group goes
/// into the batch whose samples cost the least by then. That one never has an outlier for each bin already,
/// as it would cost more than the mean batch. Few outliers so come into one batch, and many leave batches
/// level. Other samples stay where they are, but for the last of a batch that has too many then: they fill up
/// the others. Ties go to what was drawn first.
///
/// The delay of documents of WLB-LLM (2503.17924), where they wait for one for each microbatch, has a window
/// in the place of queues: it depends on nothing before it, and so no order of a resumed run does.
///
/// `costs` are of a whole number of batches, in any one unit, none of them negative.
std::vector<std::int32_t> delay_outliers(std::span<const double> costs, int batch, const OutlierDelay& delay);

/// Counts the samples of a batch, the `number`-th of its window; `drawn` are the positions at which they were
/// drawn.
void count_moved(std::span<const std::int32_t> drawn, int number, int batch, DelayCount& count);

}  // namespace dflop
