// DistTrainPlanner divides the GPUs between encoder and LLM by the rule of DistTrain.
#pragma once

#include <string>

#include "core/iteration/planner.hpp"

namespace dflop {

/// A DistTrainPlanner makes a disaggregated plan by the rule of DistTrain (arXiv 2408.04275), after the
/// paper's abstract and what others write about it: the paper's text was not read.
///
/// For each tp of encoder and LLM in {1, 2, 4, 8}, each LLM dp that divides the global batch and each number
/// of microbatches that gives all of them equally many samples, it finds the GPUs of both modules for which
/// GpuSplit::seconds() is smallest, rounds them to whole replicas and stages, and keeps the best choice that
/// fits into memory. The encoder has one stage, and its dp divides the global batch, too. GPUs may stay
/// unused.
///
/// The times are the cost model's for copies of one mean sample, as DistTrain profiles one sample. So the
/// planner does not see that samples differ, which its scheduler then repairs. DistTrain's microbatch size is
/// fixed; here, the best one is chosen. A choice fits if LPT's microbatches fit in all iterations of the
/// request. PlanResult::objective is GpuSplit::seconds().
///
/// The generator after the LLM, the brokers between modules and the preprocessing on other CPUs are left out.
class DistTrainPlanner final : public Planner {
 public:
  std::string_view name() const override { return "disttrain"; }

  /// @throws Error (usage) for orders of several chunks or that spread the encoder; Error (input) unless
  /// there are profile samples, at least one batch, and gbs samples in each batch.
  PlanResult plan(const PlanRequest& request) const override;
};

/// A DistTrainChoice is a plan with its estimated time.
struct DistTrainChoice {
  Plan plan;
  double seconds = 0;
};

/// Returns the rounded plan of each tp, dp and number of microbatches, fastest first, whatever memory they
/// need. Equally fast choices are in the order of encoder tp, LLM tp, dp and microbatches.
std::vector<DistTrainChoice> disttrain_choices(const PlanRequest& request);

}  // namespace dflop
