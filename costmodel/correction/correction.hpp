// Adaptive Correction learns from runs how much longer samples of some shapes take than a cost model
// predicts. docs/correction.md derives it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/measured/correction_fit.hpp"
#include "core/plan.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// Returns which modules a stage holds; a stage without layers counts as an LLM stage.
StageKind kind_of(const Stage& stage);

/// Returns the bucket of a sample's work in one module. @pre work is not empty
ShapeBucket bucket_of(bool encoder, const Workload& work);

/// Returns the buckets that a sample belongs to on stages of this kind: one for each module that the stages
/// hold and that the sample has work for.
std::vector<ShapeBucket> buckets_of(StageKind kind, const Sample& sample);

/// A CorrectionRow is one observation: one microbatch on the stages of one kind. For a separate encoder it
/// covers all dp ranks, because they share a microbatch; otherwise it covers one dp rank.
struct CorrectionRow {
  StageKind kind = StageKind::llm;
  Op op = Op::forward;
  double observed_s = 0;   ///< sum over its stages and ranks
  double predicted_s = 0;  ///< the base model's prediction of observed_s
  double unit_s = 0;       ///< time of the reference work on one rank, summed over these stages
  std::vector<std::pair<ShapeBucket, double>> samples;  ///< count of samples in each bucket
};

struct CorrectionOptions {
  /// Strength of the prior: penalties are shrunk as if this many samples without a penalty had been seen. It
  /// is the squared ratio of noise (a few percent) to penalties (about ten percent).
  double prior = 0.1;
  double memory = 0.98;            ///< weight of an iteration relative to the next one
  double largest_surprise = 0.25;  ///< larger relative residuals get no more influence than this
  double slack = 1;                ///< of the change detectors (CUSUM), in standard deviations
  double limit = 10;               ///< a detector reports a change if its sum exceeds this
};

/// A Correction is a running least-squares fit for each kind of stage and op:
///
///     observed = level x predicted + sum over samples of penalty(bucket) x unit + noise
///
/// with ridge shrinkage of the level to 1 and of the penalties to 0, exponential forgetting, bounded
/// influence (Huber 1964) and, for each coefficient, a two-sided CUSUM (Page 1954) that forgets it when it
/// has changed. It is deterministic.
class Correction {
 public:
  explicit Correction(CorrectionOptions options = {});
  /// Continues from the fits of another Correction. @throws Error (input) if the sums of a fit do not match
  /// its columns in size, or belong to no observations.
  explicit Correction(std::vector<CorrectionFit> fits, CorrectionOptions options = {});

  /// Learns from the rows of one iteration. All rows of a kind and op must have the same unit, in every call.
  /// @throws Error (input) for a time that is negative or not finite, or a unit that is not positive.
  void learn(std::span<const CorrectionRow> rows);

  /// Learns from one executed iteration of a plan; `base` is the cost model that this corrects. A timeline
  /// without spans or works is ignored.
  void learn(const Timeline& timeline, const CostModel& base, const Plan& plan, std::span<const Sample> batch,
             const Assignment& assignment);

  bool knows(StageKind kind, Op op) const { return find(kind, op) != nullptr; }

  /// Returns observed / predicted for work without unusual samples; 1 if nothing is known.
  double level(StageKind kind, Op op) const;

  /// Returns the extra time of one sample of a bucket, in durations of the reference work; 0 if nothing is
  /// known.
  double penalty(StageKind kind, Op op, const ShapeBucket& bucket) const;

  /// Returns the work whose duration is the unit of penalties; empty if nothing is known.
  Work reference(StageKind kind, Op op) const;

  /// Returns the number of coefficients forgotten since construction because they had changed.
  std::int64_t changes() const { return changes_; }

  const std::vector<CorrectionFit>& fits() const { return fits_; }

 private:
  const CorrectionFit* find(StageKind kind, Op op) const;
  CorrectionFit& find_or_add(StageKind kind, Op op);
  void learn(CorrectionFit& fit, std::span<const CorrectionRow* const> rows);
  void solve(std::size_t fit);

  CorrectionOptions options_;
  std::vector<CorrectionFit> fits_;
  std::vector<std::vector<double>> solutions_;  ///< per fit and column; stores level - 1
  std::int64_t changes_ = 0;
};

}  // namespace dflop
