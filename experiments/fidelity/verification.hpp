// A Verification predicts what plans take beside one another, runs them live in turns, and judges.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/fidelity/study.hpp"
#include "experiments/fidelity/verdict.hpp"

namespace dflop {

/// A SlowRank takes `factor` of the time that it is predicted to compute; the rest of it, it waits busily.
struct SlowRank {
  int rank = 0;       ///< first of its tp group
  double factor = 1;  ///< >= 1
};

/// A Variant is what is run beside others.
struct Variant : NamedPlan {
  std::optional<SlowRank> slow = {};
};

/// A CostSource returns what predicts a variant on the batch of this number; it must live as long as the run.
using CostSource = std::function<const SumCostModel&(std::size_t variant, std::size_t batch)>;

struct VerificationInput {
  std::shared_ptr<const Target> target;
  std::vector<Batch> batches;  ///< warm-up included; all variants run the same ones
  CostSource cost;
};

struct VerificationOptions : FidelityOptions {
  JudgeOptions judge;
};

/// RankTimes are means over ranks and steps.
struct RankTimes {
  Seconds busy{0};
  Seconds bubble{0};
  Seconds wait{0};
};

/// A VariantRun is what one variant came to.
struct VariantRun {
  Variant variant;
  std::vector<Seconds> predicted;  ///< by step
  std::vector<Seconds> measured;
  RankTimes predicted_times;
  RankTimes measured_times;
  std::vector<OperationFidelity> operations;
};

struct Verification {
  std::vector<VariantRun> runs;       ///< the first is what the others are compared with
  std::vector<Judgement> judgements;  ///< of runs[1], runs[2], ...
  JudgeOptions options;
  std::optional<double> others;  ///< part of the machine's processor time that others took
};

/// Predicts every step of every variant, then runs them live: steps A B, B A, A B, ... of two variants, and
/// likewise of more, each pair on the same batch. All variants are in memory at the same time. Calls
/// `on_step` after each step; what it throws ends the run.
/// @throws Error (usage) for a rank that begins no tp group, Error (input) where no schedule obeys the caps;
/// as LiveExecutor
Verification verify_live(const std::vector<Variant>& variants, const VerificationInput& input,
                         const VerificationOptions& options, const std::function<void()>& on_step);

/// Returns a row for each comparison: predicted and measured difference, interval, verdict.
Table verdict_table(const Verification& verification);

/// Returns a row for each variant: times predicted and measured, and how ranks spend them.
Table variant_table(const Verification& verification);

/// Returns a row for each variant, module and kind of operation, predicted and measured.
Table variant_operations_table(const Verification& verification);

/// Says each verdict in a sentence.
std::vector<std::string> verdict_sentences(const Verification& verification);

/// Returns all of it as JSON, with every step.
std::string verification_json(const Verification& verification);

/// Makes a page of it, with a picture of the steps and of the intervals.
std::string verification_page(const Provenance& made_by, const Verification& verification);

}  // namespace dflop
