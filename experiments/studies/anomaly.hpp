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
  double fraction = 0.01;  ///< of the samples, in whole shape buckets drawn at random
  double latency = 0.5;    ///< time that each slow sample adds to each stage of its module, as a multiple of
                           ///< the duration of the largest stage
  bool encoder = false;    ///< whether encoder shapes are slow; else LLM shapes
  bool shifted = false;    ///< slow buckets are offset by half a bucket from the buckets in which correction
                           ///< learns
  int begin = 0;           ///< first iteration in which they are slow
  int end = INT32_MAX;     ///< first iteration in which they are no longer slow
};

/// An AnomalousCostModel acts as the hardware: it equals `base`, except that samples of some buckets take
/// longer.
class AnomalousCostModel final : public CostModelOver {
 public:
  /// Makes the samples of an anomaly slow. A stage's duration is the forward and backward time of the mean
  /// microbatch of `samples`.
  AnomalousCostModel(const CostModel& base, const Plan& plan, const ModelSpec& model,
                     std::span<const Sample> samples, const Anomaly& anomaly, std::uint64_t seed);

  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override;

  /// Returns the fraction of slow samples: at most 5 % more than requested, unless even the rarest bucket has
  /// more.
  double fraction() const { return fraction_; }

 private:
  Anomaly anomaly_;
  Work mean_;         ///< the mean microbatch
  double scale_ = 1;  ///< duration of the largest stage / largest stage of the slow module
  double fraction_ = 0;
  std::vector<int> buckets_;
};

}  // namespace dflop
