#include "experiments/checks/paper/habits.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/support/random.hpp"
#include "solver/planners/uniform/planner.hpp"

namespace dflop {
namespace {

constexpr Habit kHabits[] = {
    {.name = "megatron-tuned", .what = "no habit"},
    {.name = "megatron-padded", .what = "microbatches of 4 samples, padded to the longest", .pads = true},
    {.name = "megatron-no-zero1", .what = "no distributed optimizer", .keeps_states = true},
    {.name = "megatron-recomputed", .what = "full recomputation", .recomputes = true},
    {.name = "megatron-encoder-alone", .what = "only the encoder on the first stage", .encoder_alone = true},
    {.name = "megatron-as-run",
     .what = "all four habits",
     .pads = true,
     .keeps_states = true,
     .recomputes = true,
     .encoder_alone = true},
};

bool has_encoder_alone(const Plan& plan) {
  return plan.llm.pp > 1 && plan.llm.layers.front() == 0;
}

/// Returns the fastest plan whose microbatches all have kPaddedSamples samples, run on padded batches.
System run_padded(System system, const PlanRequest& request, const CandidateFilter& filter,
                  const Target& target, const ComparisonInput& input) {
  std::vector<Plan> plans = uniform_candidates(request, UniformSplit::encoder_first);
  filter(plans);
  std::erase_if(plans, [&](const Plan& plan) {
    return plan.microbatches * plan.llm.dp * kPaddedSamples != request.gbs;
  });
  const std::vector<Batch> batches = padded(input.batches, kPaddedSamples, input.seed);
  system.planned.infeasible_reason = "no number of microbatches gives each of them 4 samples";
  for (const Plan& candidate : plans) {
    for (const Recomputation recomputation : free_parts(request).recomputations) {
      Plan plan = candidate;
      plan.recomputation = recomputation;
      ++system.planned.candidates;
      // The samples of a group are in one bin.
      ScheduledRun run = schedule_and_evaluate(plan, target, batches, {"sequential"}, input.seed, 1);
      if (const auto problem = out_of_memory(run.evaluation->timelines, target.cluster)) {
        if (!system.evaluation) system.planned.infeasible_reason = describe(plan) + ": " + *problem;
        continue;
      }
      if (system.evaluation && run.evaluation->mean >= system.evaluation->mean) continue;
      system.planned.plan = std::move(plan);
      system.schedule = std::move(run.schedule);
      system.evaluation = std::move(run.evaluation);
    }
  }
  return system;
}

}  // namespace

std::span<const Habit> habits() {
  return kHabits;
}

std::vector<Batch> padded(const std::vector<Batch>& batches, int samples, std::uint64_t seed) {
  Random random(seed);
  std::vector<Batch> all = batches;
  for (Batch& batch : all) {
    random.shuffle(std::span(batch));
    const auto size = static_cast<std::size_t>(samples);
    for (std::size_t first = 0; first < batch.size(); first += size) {
      const std::span<Sample> group = std::span(batch).subspan(first, std::min(size, batch.size() - first));
      const std::int64_t longest = std::ranges::max_element(group, {}, &Sample::llm_tokens)->llm_tokens;
      for (Sample& sample : group) sample.llm_tokens = longest;
    }
  }
  return all;
}

System run_habit(const Habit& habit, const Target& target, const ComparisonInput& input) {
  PlanOptions options = input.options;
  SearchOptions search = input.search;
  if (habit.keeps_states) options.zero1 = false;
  if (habit.recomputes) search.recomputations = {options.recomputation = Recomputation::full};
  const PlanRequest request{target.problem(), target.executor, input.gbs,       input.samples, input.batches,
                            input.seed,       options,         /*progress=*/{}, search};
  const CandidateFilter filter = [&](std::vector<Plan>& plans) {
    if (habit.encoder_alone) std::erase_if(plans, [](const Plan& plan) { return !has_encoder_alone(plan); });
  };
  System system{std::string(habit.name), "megatron", SchedulerChoice{"random"}};
  if (habit.pads) return run_padded(std::move(system), request, filter, target, input);
  system.planned = UniformPlanner(UniformSplit::encoder_first, filter).plan(request);
  if (!system.planned.plan) return system;
  ScheduledRun run =
      schedule_and_evaluate(*system.planned.plan, target, input.batches, system.scheduler, input.seed, 1);
  system.schedule = std::move(run.schedule);
  system.evaluation = std::move(run.evaluation);
  return system;
}

}  // namespace dflop
