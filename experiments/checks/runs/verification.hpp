// A Verification predicts the times of several plans, runs them live in alternation, and judges the predicted
// differences.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "experiments/checks/runs/study.hpp"
#include "experiments/checks/runs/verdict.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

/// A SlowRank is slowed down on purpose: it busy-waits until its compute has taken `factor` times the
/// predicted time.
struct SlowRank {
  int rank = 0;       ///< must be the first rank of a tp group
  double factor = 1;  ///< >= 1
};

/// A Variant is a plan to compare, optionally with a slow rank.
struct Variant : NamedPlan {
  std::optional<SlowRank> slow = {};
};

/// A CostSource returns the cost model that predicts a variant on the batch with this number. The model must
/// outlive the run.
using CostSource = std::function<const SumCostModel&(std::size_t variant, std::size_t batch)>;

struct VerificationInput {
  std::shared_ptr<const Target> target;
  std::vector<Batch> batches;  ///< including batches for warm-up; all variants run the same batches
  CostSource cost;
};

struct VerificationOptions : FidelityOptions {
  JudgeOptions judge;
};

/// RankTimes say how ranks spend a step, as means over ranks and steps.
struct RankTimes {
  Seconds busy{0};
  Seconds bubble{0};
  Seconds wait{0};
};

/// A VariantRun holds the predicted and measured times of one variant.
struct VariantRun {
  Variant variant;
  std::vector<Seconds> predicted;  ///< predicted time of each step
  std::vector<Seconds> measured;
  RankTimes predicted_times;
  RankTimes measured_times;
  std::vector<OperationFidelity> operations;
};

struct Verification {
  std::vector<VariantRun> runs;     ///< each other run is compared with the first
  std::vector<Judgment> judgments;  ///< for runs[1], runs[2], ...
  JudgeOptions options;
  std::optional<double> others;  ///< fraction of the machine's processor time used by other processes
};

/// Predicts every step of every variant, then runs the variants live in alternating order, such as A B, B A,
/// A B, ... for two. All variants run each batch before the next one. All variants are in memory at the same
/// time. Calls `on_step` after each step; an exception from it ends the run.
/// @throws Error (usage) for a rank that is not the first of a tp group, Error (input) if no schedule obeys
/// the caps; what LiveExecutor throws
Verification verify_live(const std::vector<Variant>& variants, const VerificationInput& input,
                         const VerificationOptions& options, const std::function<void()>& on_step);

/// Returns a table with a row for each comparison: predicted and measured difference, interval, verdict.
Table verdict_table(const Verification& verification);

/// Returns a table with a row for each variant: predicted and measured times, and how ranks spend them.
Table variant_table(const Verification& verification);

/// Returns a table with a row for each variant, module and kind of operation: predicted and measured times.
Table variant_operations_table(const Verification& verification);

/// Returns a sentence for each verdict.
std::vector<std::string> verdict_sentences(const Verification& verification);

/// Returns all results as JSON, including every step.
std::string verification_json(const Verification& verification);

/// Makes a page of the verification, with a picture of the steps and the intervals.
std::string verification_page(const Provenance& made_by, const Verification& verification);

}  // namespace dflop
