// This is the published study of Adaptive Correction, in the simulator: some shapes of samples take longer
// than the cost model says, and what correction makes of that.
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

/// An Anomaly says which samples are slow, and how much a slow one adds.
struct Anomaly {
  double fraction = 0.01;  ///< of the samples, in whole shape buckets drawn at random
  double latency = 0.5;    ///< that each adds to each stage of its module, in durations of the largest stage
  bool encoder = false;    ///< whose shapes are slow; else the LLM's
  bool shifted = false;    ///< buckets half a bucket away from those that correction learns in
  int begin = 0;           ///< first iteration in which they are slow
  int end = INT32_MAX;     ///< first in which they no longer are
};

/// An AnomalousCostModel is the "hardware": `base`, but that samples of some buckets take longer.
class AnomalousCostModel final : public CostModelOver {
 public:
  /// Makes the samples of an anomaly slow. The duration of a stage is that of a forward and a backward of the
  /// mean microbatch of `samples`.
  AnomalousCostModel(const CostModel& base, const Plan& plan, const ModelSpec& model,
                     std::span<const Sample> samples, const Anomaly& anomaly, std::uint64_t seed);

  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override;

  /// Returns the part of the samples that is slow: at most 5 % more than asked for, unless the rarest bucket
  /// is.
  double fraction() const { return fraction_; }

 private:
  Anomaly anomaly_;
  Work mean_;         ///< of a microbatch
  double scale_ = 1;  ///< duration of the largest stage / that of the largest of the slow module
  double fraction_ = 0;
  std::vector<int> buckets_;
};

struct CorrectionStudy {
  const Plan& plan;
  const Target& target;
  const std::vector<Batch>& batches;  ///< one an iteration
  SchedulerChoice scheduler;
  std::uint64_t seed = 1;
  double tracking_cost = 0.04;  ///< of throughput
  double jitter = 0.02;         ///< sigma of every instruction's duration
  SwitchOptions switching;      ///< probes only under SwitchRule::keep
};

/// A CorrectionRun is one way of running all iterations.
struct CorrectionRun {
  std::vector<double> seconds;  ///< per iteration, with what tracking costs
  std::vector<bool> tracked;    ///< per iteration, probes apart
  /// The cost of tracking, C, is the measured one; in a run that is always tracked it is the one that was
  /// set, and in one that never tracked or has not measured it there is none.
  std::optional<double> cost;
  double benefit = 0;  ///< of the last window
  std::vector<CorrectionFit> learned;

  /// Returns "on 0, off 8, on 12, off 24": iterations at which tracking began or stopped.
  std::string story() const;
  /// Returns the iteration since which it tracks or rests as at the end.
  std::int64_t since() const;
};

struct CorrectionCell {
  Anomaly anomaly;
  double fraction = 0;      ///< of samples that are slow
  CorrectionRun off;        ///< never corrected
  CorrectionRun on;         ///< always tracked and corrected
  CorrectionRun perfect;    ///< scheduled with the hardware's own costs, at no cost
  CorrectionRun published;  ///< switched, SwitchRule::published
  CorrectionRun keep;       ///< switched, SwitchRule::keep
};

/// Returns the throughput of iterations [begin, end) against that of `other`, minus 1.
double gain(const CorrectionRun& run, const CorrectionRun& other, std::size_t begin, std::size_t end);

/// Runs each anomaly, on all cores. The same study gives the same cells.
/// `progress` is called with runs done and all runs, several of each cell, from any thread, never at once;
/// may be empty.
std::vector<CorrectionCell> run_correction_study(
    const CorrectionStudy& study, const std::vector<Anomaly>& anomalies,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace dflop
