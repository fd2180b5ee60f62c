// An Anomaly makes some samples slower than a cost model predicts, for studies of Adaptive Correction.
#pragma once

#include <climits>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/sample.hpp"
#include "costmodel/correction/corrected.hpp"

namespace dflop {

/// An Anomaly says which samples are slow, and by how much.
struct Anomaly {
  /// Fraction of slow samples; whole shape buckets are drawn at random until they have it.
  double fraction = 0.01;
  double latency = 0.5;  ///< time that each slow sample adds to each stage of its module, as a multiple of
                         ///< the duration of the largest stage
  bool encoder = false;  ///< true: the encoder runs these samples slowly; false: the LLM does
  bool shifted = false;  ///< slow buckets are offset by half a bucket from the buckets in which correction
                         ///< learns
  int begin = 0;         ///< first iteration in which the samples are slow
  int end = INT32_MAX;   ///< first iteration in which the samples are fast again
};

/// An AnomalousCostModel stands for the real hardware: its costs equal those of `base`, except that samples
/// of some buckets take longer.
class AnomalousCostModel final : public CostModelOver {
 public:
  /// Makes the samples of an anomaly slow. `samples` have the distribution of shapes, from which the slow
  /// buckets are drawn, and the mean microbatch, whose forward and backward time is a stage's duration.
  AnomalousCostModel(const CostModel& base, const Plan& plan, const ModelSpec& model,
                     std::span<const Sample> samples, const Anomaly& anomaly, std::uint64_t seed);

  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override;

  /// Returns the actual fraction of slow samples. It exceeds the requested one by at most 5 %, unless even
  /// the rarest bucket has more samples.
  double fraction() const { return fraction_; }

 private:
  Anomaly anomaly_;
  Work mean_;         ///< the mean microbatch
  double scale_ = 1;  ///< duration of the largest stage divided by that of the slow module's largest stage
  double fraction_ = 0;
  std::vector<int> buckets_;
};

}  // namespace dflop
