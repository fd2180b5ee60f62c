#include "solver/planners/search/score.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/program/lowering.hpp"
#include "core/support/parallel.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/plan_problem/trial.hpp"

namespace dflop {
namespace {

/// An IterationScore is the contribution of one iteration to a plan's score.
struct IterationScore {
  bool has_run = false;
  bool fits = false;
  Bytes peak_memory;
  Seconds makespan;
  RankShares shares;
};

IterationScore score_iteration(const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                               std::size_t k, ScheduleLimits limits) {
  const Bytes usable = request.cluster.gpu.usable_memory();
  limits.usable_memory = usable;
  IterationScore score;
  const ScheduleResult scheduled =
      scheduler.schedule({request.batches[k], plan, request.model, request.cost, request.seed, k, limits});
  if (!scheduled.feasible()) return score;
  if (k == 0 && memory_needs_no_run(plan)) {  // far less work than a run
    score.peak_memory =
        peak_memory(plan, request.model, request.cost, request.batches[k], scheduled.assignment);
    if (score.peak_memory > usable) return score;
  }
  const Timeline timeline = run_iteration(request, plan, k, scheduled.assignment);
  score.peak_memory = std::max(score.peak_memory, peak_memory(timeline));
  score.fits = score.peak_memory <= usable;
  score.has_run = true;
  score.makespan = timeline.makespan;
  score.shares = rank_shares(timeline);
  return score;
}

}  // namespace

void extend_score(PlanScore& score, const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                  std::size_t iterations, const ScheduleLimits& limits) {
  while (score.fits && score.iterations.size() < iterations) {
    // Run the first one by itself: it reveals most plans that do not fit.
    const std::size_t first = score.iterations.size();
    std::vector<IterationScore> more(first == 0 ? 1 : iterations - first);
    parallel_for(more.size(), [&](std::size_t i) {
      more[i] = score_iteration(request, plan, scheduler, first + i, limits);
    });
    for (const IterationScore& one : more) {
      score.fits = one.fits;
      score.peak_memory = std::max(score.peak_memory, one.peak_memory);
      if (one.has_run) {
        score.iterations.push_back(one.makespan);
        score.total += one.shares;
      }
      if (!score.fits) return;
    }
  }
}

std::int64_t search_budget(const PlanRequest& request) {
  constexpr std::int64_t kBudgetOfGpu = 90'000;  // about two seconds on two cores for 32 GPUs
  constexpr std::int64_t kMinBudget = 3'000'000;
  constexpr std::int64_t kMaxBudget = 12'000'000;
  constexpr std::int64_t kBudgetOfMany = 4'000'000;
  if (request.search.budget > 0) return request.search.budget;
  if (request.search.time_limit) return std::numeric_limits<std::int64_t>::max();
  if (request.cluster.gpus() > kManyGpus) return kBudgetOfMany;
  return std::clamp(kBudgetOfGpu * request.cluster.gpus(), kMinBudget, kMaxBudget);
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
