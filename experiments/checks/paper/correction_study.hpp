// This is the published study of Adaptive Correction, in the simulator: samples of some shapes take longer
// than the cost model predicts, and the study measures the gain from correction.
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
  double tracking_cost = 0.04;  ///< fraction of throughput
  double jitter = 0.02;         ///< sigma of every instruction's duration
  SwitchOptions switching;      ///< probes are used only with SwitchRule::keep
};

/// A CorrectionRun is the result of running all iterations in one way.
struct CorrectionRun {
  std::vector<double> seconds;  ///< per iteration, including the cost of tracking
  std::vector<bool> tracked;    ///< per iteration: whether it was tracked; false for probes
  /// This is the cost of tracking, C. A switched run measures it; an always-tracked run has the given cost.
  /// It is empty if the run never tracked, or has not measured the cost yet.
  std::optional<double> cost;
  double benefit = 0;  ///< benefit of correction in the last window
  std::vector<CorrectionFit> learned;

  /// Returns the iterations at which tracking began or stopped: "on 0, off 8, on 12, off 24".
  std::string story() const;
  /// Returns the first iteration of the current state: of tracking or, if tracking is off, of the time
  /// without it.
  std::int64_t since() const;
};

struct CorrectionCell {
  Anomaly anomaly;
  double fraction = 0;      ///< fraction of slow samples
  CorrectionRun off;        ///< never corrected
  CorrectionRun on;         ///< always tracked and corrected
  CorrectionRun perfect;    ///< scheduled with the hardware's own costs, without the cost of tracking
  CorrectionRun published;  ///< tracking is switched by SwitchRule::published
  CorrectionRun keep;       ///< tracking is switched by SwitchRule::keep
};

/// Returns the gain of `run` over `other` in iterations [begin, end): the ratio of their throughputs, minus
/// 1.
double gain(const CorrectionRun& run, const CorrectionRun& other, std::size_t begin, std::size_t end);

/// Runs each anomaly, on all cores. The same study gives the same cells. `progress` is called with the number
/// of finished runs and the number of all runs, several per cell. It is called from any thread but never
/// concurrently, and may be empty.
std::vector<CorrectionCell> run_correction_study(
    const CorrectionStudy& study, const std::vector<Anomaly>& anomalies,
    const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace dflop
