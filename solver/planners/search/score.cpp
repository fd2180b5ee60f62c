#include "solver/planners/search/score.hpp"

#include "core/program/lowering.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/plan_problem/trial.hpp"

namespace dflop {

void extend_score(PlanScore& score, const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                  std::size_t iterations, const ScheduleLimits& limits) {
  const Bytes usable = request.cluster.gpu.usable_memory();
  for (std::size_t k = score.iterations.size(); k < iterations && score.fits; ++k) {
    const ScheduleResult scheduled =
        scheduler.schedule({request.batches[k], plan, request.model, request.cost, request.seed, k, limits});
    score.fits = scheduled.feasible();
    if (!score.fits) return;
    if (k == 0 && memory_needs_no_run(plan)) {  // far less work than a run
      score.peak_memory =
          peak_memory(plan, request.model, request.cost, request.batches[k], scheduled.assignment);
      score.fits = score.peak_memory <= usable;
      if (!score.fits) return;
    }
    const Timeline timeline = run_iteration(request, plan, k, scheduled.assignment);
    score.peak_memory = std::max(score.peak_memory, peak_memory(timeline));
    score.fits = score.peak_memory <= usable;
    score.iterations.push_back(timeline.makespan);
    score.total += rank_shares(timeline);
  }
}

std::int64_t instructions_of(const Plan& plan) {
  constexpr int kEachStep = 6;  // forward, backward and their messages
  const int encoder_groups = has_encoder_ranks(plan.layout) ? plan.encoder.pp * plan.encoder.dp : 0;
  const std::int64_t steps =
      std::int64_t{plan.microbatches} * (encoder_groups + plan.llm.pp * plan.llm.dp * plan.chunks);
  return steps * kEachStep * (reads_tables(plan.order) ? 2 : 1);
}

std::int64_t instructions_of_buckets(const Plan& plan, const ModelSpec& model) {
  if (plan.gradient_bucket.count == 0) return 0;
  std::int64_t instructions = 0;
  for (const Stage& stage : plan_stages(plan, model)) {
    const std::int64_t bytes = trained_parameters(stage, model) * gradient_bytes(plan.optimizer_states);
    if (stage.dp > 1 && bytes > 0)
      instructions += 2 * stage.dp * gradient_buckets(Bytes{bytes}, plan.gradient_bucket);
  }
  return instructions;
}

}  // namespace dflop
