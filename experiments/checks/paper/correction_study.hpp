// This file repeats the published study of Adaptive Correction in the simulator. Samples of some shapes take
// longer than the cost model predicts, and the study measures the gain of correction.
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
#include "experiments/studies/anomaly.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"

namespace dflop {

struct CorrectionStudy {
  const Plan& plan;
  const Target& target;
  const std::vector<Batch>& batches;  ///< one per iteration
  SchedulerChoice scheduler;
  std::uint64_t seed = 1;
  double tracking_cost = 0.04;  ///< fraction of throughput lost while a run tracks
  double jitter = 0.02;         ///< relative standard deviation of instruction durations
  SwitchOptions switching;      ///< its settings for probes apply only to SwitchRule::keep
};

/// A CorrectionRun is the result of running all iterations in one way.
struct CorrectionRun {
  std::vector<double> seconds;  ///< per iteration, including the cost of tracking
  std::vector<bool> tracked;    ///< per iteration: whether the run tracked it, other than as a probe
  /// The cost of tracking, C. A switched run measures it; an always-tracked run has the given cost. Empty if
  /// the run never tracked or has not measured the cost.
  std::optional<double> cost;
  double benefit = 0;  ///< the benefit of correction, measured in the last window
  std::vector<CorrectionFit> learned;

  /// Returns the iterations at which tracking started or stopped: "on 0, off 8, on 12, off 24".
  std::string story() const;
  /// Returns the iteration since which tracking has been on, or off, without a change.
  std::int64_t since() const;
};

struct CorrectionCell {
  Anomaly anomaly;
  double fraction = 0;      ///< fraction of slow samples
  CorrectionRun off;        ///< never corrected
  CorrectionRun on;         ///< always tracked and corrected
  CorrectionRun perfect;    ///< scheduled with the hardware's true costs, without a cost of tracking
  CorrectionRun published;  ///< switched, SwitchRule::published
  CorrectionRun keep;       ///< switched, SwitchRule::keep
};

/// Returns how much higher the throughput of iterations [begin, end) is than in `other`: the ratio minus 1.
double gain(const CorrectionRun& run, const CorrectionRun& other, std::size_t begin, std::size_t end);

/// Runs the study for each anomaly, on all cores. The same study always gives the same cells. `progress` may
/// be empty. It receives the numbers of finished runs and of all runs (each cell has several). Any thread may
/// call it, but never two at a time.
std::vector<CorrectionCell> run_correction_study(
    const CorrectionStudy& study, const std::vector<Anomaly>& anomalies,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace dflop
