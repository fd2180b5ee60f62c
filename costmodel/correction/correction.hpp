// Adaptive Correction learns from runs what the shapes of samples do to durations beyond what a cost model
// says. docs/correction.md derives it.
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

/// Returns which modules a stage holds; one without layers counts as the LLM's.
StageKind kind_of(const Stage& stage);

/// Returns the bucket of a sample's work in one module. @pre work is not empty
ShapeBucket bucket_of(bool encoder, const Workload& work);

/// Returns the buckets in which a sample counts on stages of this kind: one for each module that they hold
/// and that it has work for.
std::vector<ShapeBucket> buckets_of(StageKind kind, const Sample& sample);

/// A CorrectionRow is one microbatch on the stages of one kind: on all dp ranks of an encoder apart, which
/// share it, else on one dp rank.
struct CorrectionRow {
  StageKind kind = StageKind::llm;
  Op op = Op::forward;
  double observed_s = 0;   ///< sum over its stages and ranks
  double predicted_s = 0;  ///< the same by the base model
  double unit_s = 0;       ///< what the reference work takes, over its stages, on one rank
  std::vector<std::pair<ShapeBucket, double>> samples;  ///< how many of each bucket
};

struct CorrectionOptions {
  /// Samples on which nothing is known count as so many without penalty: noise of a few percent against
  /// penalties of some ten (the squared ratio of both).
  double prior = 0.1;
  double memory = 0.98;            ///< what an iteration counts, an iteration later
  double largest_surprise = 0.25;  ///< relative residuals beyond it have no more influence than it
  double slack = 1;                ///< change detection, in standard deviations
  double limit = 10;
};

/// A Correction is a running least squares of each kind of stage and op:
///
///     observed = level x predicted + sum over samples of penalty(bucket) x unit + noise
///
/// with ridge shrinkage of the level to 1 and of the penalties to 0, exponential forgetting, bounded
/// influence (Huber 1964) and, for each coefficient, a two-sided CUSUM (Page 1954) that forgets it when it
/// has changed. Deterministic.
class Correction {
 public:
  explicit Correction(CorrectionOptions options = {});
  /// Goes on where another ended. @throws Error (input) for sums of other sizes than their columns, or that
  /// belong to no observations.
  explicit Correction(std::vector<CorrectionFit> fits, CorrectionOptions options = {});

  /// Learns from the rows of one iteration, each time of the same kind and op with the same unit.
  /// @throws Error (input) for a time that is negative or not finite, or a unit that is not positive.
  void learn(std::span<const CorrectionRow> rows);

  /// Learns from one iteration of a plan as it ran, `base` being the model that is corrected. A timeline
  /// without spans or works teaches nothing.
  void learn(const Timeline& timeline, const CostModel& base, const Plan& plan, std::span<const Sample> batch,
             const Assignment& assignment);

  bool knows(StageKind kind, Op op) const { return find(kind, op) != nullptr; }

  /// Returns observed / predicted of work that holds no unusual sample; 1 where nothing is known.
  double level(StageKind kind, Op op) const;

  /// Returns what one sample of a bucket adds, in durations of the reference work; 0 where nothing is known.
  double penalty(StageKind kind, Op op, const ShapeBucket& bucket) const;

  /// Returns the work whose duration is the unit of penalties, empty where nothing is known.
  Work reference(StageKind kind, Op op) const;

  /// Returns how many coefficients were forgotten because they had changed, since construction.
  std::int64_t changes() const { return changes_; }

  const std::vector<CorrectionFit>& fits() const { return fits_; }

 private:
  const CorrectionFit* find(StageKind kind, Op op) const;
  CorrectionFit& find_or_add(StageKind kind, Op op);
  void learn(CorrectionFit& fit, std::span<const CorrectionRow* const> rows);
  void solve(std::size_t fit);

  CorrectionOptions options_;
  std::vector<CorrectionFit> fits_;
  std::vector<std::vector<double>> solutions_;  ///< per fit and column; the level as its difference from 1
  std::int64_t changes_ = 0;
};

}  // namespace dflop
