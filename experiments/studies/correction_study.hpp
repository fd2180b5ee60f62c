// This is the published study of Adaptive Correction, in the simulator: some shapes of samples take longer
// than the cost model predicts, and the study measures how much is gained by correction.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/scheduler.hpp"
#include "costmodel/correction/adaptive.hpp"
#include "costmodel/correction/corrected.hpp"
#include "experiments/studies/study.hpp"

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

struct CorrectionStudy {
  const Plan& plan;
  const Target& target;
  const std::vector<Batch>& batches;  ///< one per iteration
  SchedulerChoice scheduler;
  std::uint64_t seed = 1;
  double tracking_cost = 0.04;  ///< fraction of throughput
  double jitter = 0.02;         ///< sigma of every instruction's duration
  SwitchOptions switching;      ///< probes only under SwitchRule::keep
};

/// A CorrectionRun is the result of running all iterations in one way.
struct CorrectionRun {
  std::vector<double> seconds;  ///< per iteration, including the cost of tracking
  std::vector<bool> tracked;    ///< per iteration, without probes
  /// The cost of tracking, C. In a switched run it is measured; in an always-tracked run it is the given
  /// cost; it is empty if the run never tracked or has not measured it.
  std::optional<double> cost;
  double benefit = 0;  ///< in the last window
  std::vector<CorrectionFit> learned;

  /// Returns the iterations at which tracking began or stopped: "on 0, off 8, on 12, off 24".
  std::string story() const;
  /// Returns the first iteration of the current state, tracking or not.
  std::int64_t since() const;
};

struct CorrectionCell {
  Anomaly anomaly;
  double fraction = 0;      ///< fraction of slow samples
  CorrectionRun off;        ///< never corrected
  CorrectionRun on;         ///< always tracked and corrected
  CorrectionRun perfect;    ///< scheduled with the hardware's own costs, for free
  CorrectionRun published;  ///< switched, SwitchRule::published
  CorrectionRun keep;       ///< switched, SwitchRule::keep
};

/// Returns the throughput of iterations [begin, end) relative to `other`, minus 1.
double gain(const CorrectionRun& run, const CorrectionRun& other, std::size_t begin, std::size_t end);

/// Runs each anomaly, on all cores. The same study gives the same cells. `progress` is called with the number
/// of finished runs and the number of all runs, several per cell. It is called from any thread but never
/// concurrently, and may be empty.
std::vector<CorrectionCell> run_correction_study(
    const CorrectionStudy& study, const std::vector<Anomaly>& anomalies,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace dflop
