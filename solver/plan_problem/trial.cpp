#include "solver/plan_problem/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "core/support/parallel.hpp"
#include "solver/plan_problem/memory.hpp"

namespace dflop {

Plan blank_plan(const PlanRequest& request, std::string_view planner) {
  Plan plan;
  plan.planner = planner;
  plan.model = request.model.name;
  plan.cluster = request.cluster.name;
  plan.gbs = request.gbs;
  static_cast<PlanOptions&>(plan) = request.options;
  return plan;
}

std::vector<ModulePlan> module_plans(const ClusterSpec& cluster, int gpus, int most_pp, int most_dp) {
  std::vector<ModulePlan> plans;
  for (int tp = 1; tp <= cluster.gpus_per_node; ++tp) {
    if (cluster.gpus_per_node % tp != 0 || gpus % tp != 0) continue;
    const int groups = gpus / tp;
    for (int pp = 1; pp <= std::min(most_pp, groups); ++pp) {
      if (groups % pp == 0 && groups / pp <= most_dp) plans.push_back({tp, pp, groups / pp, {}});
    }
  }
  return plans;
}

void check_batches(const PlanRequest& request) {
  if (request.batches.empty()) refuse_input("", "planning needs at least one iteration of samples");
  for (const Batch& batch : request.batches) {
    if (request.gbs > 0 && batch.size() == static_cast<std::size_t>(request.gbs)) continue;
    refuse_input("", "expected a gbs of at least 1 and iterations of gbs = {} samples, found one of {}",
                 request.gbs, batch.size());
  }
}

void check_disaggregated_request(const PlanRequest& request, std::string_view planner) {
  check_batches(request);
  if (traits(request.options.order).spreads_encoder) {
    throw Error(ErrorKind::usage,
                fmt::format("only the search makes plans with the schedule {}, not the {} planner",
                            to_string(request.options.order), planner));
  }
  if (has_chunks(request.options.order)) {
    throw Error(ErrorKind::usage,
                fmt::format("the {} planner makes one stage per pipeline rank, found the schedule {}, "
                            "which needs several",
                            planner, to_string(request.options.order)));
  }
  if (request.profile.empty()) refuse_input("", "planning needs at least one profiled sample");
}

std::string reason_against_apart(const PlanRequest& request) {
  if (request.model.encoder.layers == 0) {
    return "the model has no encoder, but this planner gives encoder and LLM their own GPUs; '--planner "
           "search' plans text models";
  }
  if (request.cluster.gpus() < 2) {
    return fmt::format("encoder and LLM on their own GPUs need at least 2 GPUs, but cluster '{}' has 1",
                       request.cluster.name);
  }
  return "";
}

Bytes largest_model_state(const PlanRequest& request, const Plan& plan) {
  const std::vector<Stage> stages = plan_stages(plan, request.model);
  Bytes largest;
  for (const std::vector<int>& of_rank : stages_of_ranks(plan_shape(plan))) {
    ModelState state;
    for (const int s : of_rank) state += request.cost.model_state(stages[s]);
    largest = std::max(largest, state.total());
  }
  return largest;
}

Timeline run_iteration(const PlanRequest& request, const Plan& plan, std::size_t iteration,
                       const Assignment& assignment) {
  return request.executor.run(make_trial_iteration(request, plan, request.batches[iteration], assignment),
                              Detail::usage);
}

Bytes assigned_peak(const Problem& problem, const Plan& plan, const Batch& batch,
                    const Assignment& assignment) {
  const PipelineOrder order = order_for_batch(plan, problem.model, problem.cost, batch, assignment,
                                              problem.cluster.gpu.usable_memory());
  return memory_peak(plan, problem.model, problem.cost, batch, assignment, order).bytes;
}

std::optional<Bytes> filled_peak(const Problem& problem, const Plan& plan, const Batch& batch,
                                 const Scheduler& scheduler, std::uint64_t seed, std::uint64_t iteration,
                                 std::optional<Bytes> limit) {
  const auto peak_under = [&](ScheduleLimits limits) -> std::optional<Bytes> {
    limits.usable_memory = problem.cluster.gpu.usable_memory();
    const ScheduleResult filled =
        scheduler.schedule({batch, plan, problem.model, problem.cost, seed, iteration, limits});
    if (!filled.feasible()) return {};
    return assigned_peak(problem, plan, batch, filled.assignment);
  };
  // A scheduler with a limit computes the peak itself, so a limit is set only if the usual bins do not fit.
  const std::optional<Bytes> peak = peak_under({});
  if (!limit || (peak && *peak <= *limit)) return peak;
  ScheduleLimits limits;
  limits.memory = limit;
  return peak_under(limits);
}

Bytes with_memory_to_spare(Bytes usable) {
  return {usable.count - usable.count / 50};
}

std::optional<Bytes> overrun(const Problem& problem, const Plan& plan, std::span<const Batch> further,
                             const Scheduler& scheduler, std::uint64_t seed, bool within, Bytes limit) {
  constexpr std::size_t kAtOnce = 4;  // the first overrun ends the search, and the hardest batches come first
  const std::optional<Bytes> kept = within ? std::optional(limit) : std::nullopt;
  for (std::size_t first = 0; first < further.size(); first += kAtOnce) {
    std::array<std::optional<Bytes>, kAtOnce> peaks;
    const std::size_t count = std::min(kAtOnce, further.size() - first);
    parallel_for(count, [&](std::size_t i) {
      const std::size_t k = first + i;
      peaks[i] = filled_peak(problem, plan, further[k], scheduler, seed, k, kept);
      if (!peaks[i]) peaks[i] = filled_peak(problem, plan, further[k], scheduler, seed, k, {});
    });
    for (const std::optional<Bytes>& peak : std::span(peaks).first(count)) {
      if (!peak)
        refuse_input("", "the scheduler {} cannot divide one of the further batches into microbatches",
                     scheduler.name());
      if (*peak > limit) return peak;
    }
  }
  return {};
}

std::string ClosestMiss::reason(const ClusterSpec& cluster) const {
  if (!plan_) return "";
  return fmt::format(
      "every configuration exceeds GPU memory; the closest ({}) needs at least {:.1f} GiB on one rank, "
      "{:.1f} GiB are usable",
      describe(*plan_), in_gib(needed_), in_gib(cluster.gpu.usable_memory()));
}

}  // namespace dflop
