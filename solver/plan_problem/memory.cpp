#include "solver/plan_problem/memory.hpp"

#include <algorithm>
#include <vector>

#include "core/program/encoder_share.hpp"
#include "core/program/lowering.hpp"

namespace dflop {
namespace {

/// Work of every microbatch, per dp rank of a module.
using ModuleWorks = std::vector<std::vector<Work>>;  // [dp rank][microbatch]

ModuleWorks works_of(int dp, int microbatches) {
  return ModuleWorks(dp, std::vector<Work>(microbatches));
}

/// The most that one group needs beside its model state.
Bytes peak_of_steps(const CostModel& cost, const std::vector<Stage>& stages,
                    const std::vector<ScheduleStep>& steps, const std::vector<Work>& works) {
  Bytes held;
  Bytes peak;
  for (const ScheduleStep& step : steps) {
    const Stage& stage = stages[step.stage];
    const Work& work = works[step.microbatch];
    const Bytes kept = cost.activation_of(step.op, stage, work);
    if (step.op == Op::forward) held += kept;
    peak = std::max(peak, held + cost.workspace(step.op, stage, work));
    if (step.op == Op::backward_input) held += kept;  // its backward_weight will see the most
    if (step.op == Op::backward || step.op == Op::backward_weight) held -= kept;
  }
  return peak;
}

}  // namespace

bool memory_needs_no_run(const Plan& plan) {
  return plan.layout == Layout::disaggregated && !reads_tables(plan.schedule);
}

Bytes peak_memory(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                  std::span<const Sample> batch, const Assignment& assignment) {
  const SamplesOfBins bins = samples_of_bins(plan, assignment);
  ModuleWorks encoder = works_of(plan.encoder.dp, plan.microbatches);
  ModuleWorks llm = works_of(plan.llm.dp, plan.microbatches);
  for (int j = 0; j < plan.microbatches; ++j) {
    const EncoderShare share = share_encoder(plan, model, batch, bins, j);
    for (int e = 0; e < plan.encoder.dp; ++e) encoder[e][j].encoder = share.work[e];
    for (int d = 0; d < plan.llm.dp; ++d) {
      for (const std::int32_t i : bins[j * plan.llm.dp + d]) llm[d][j].llm += batch[i].llm();
    }
  }
  const std::vector<Stage> stages = plan_stages(plan, model);
  const PipelineOrder order = plan_order(plan);
  const std::vector<std::vector<int>> stages_of_rank = stages_of_ranks(order.shape);
  Bytes peak;
  for (std::size_t rank = 0; rank < order.ranks.size(); ++rank) {
    ModelState state;
    for (const int s : stages_of_rank[rank]) state += cost.model_state(stages[s]);
    const bool is_encoder = static_cast<int>(rank) < plan.encoder.pp;
    for (const std::vector<Work>& works : is_encoder ? encoder : llm) {
      peak = std::max(peak, state.total() + peak_of_steps(cost, stages, order.ranks[rank], works));
    }
  }
  return peak;
}

}  // namespace dflop
