#include "experiments/fidelity/study.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/support/median.hpp"
#include "costmodel/recorded/program.hpp"
#include "experiments/fidelity/measuring.hpp"
#include "experiments/training/live_setup.hpp"
#include "experiments/training/loop.hpp"
#include "experiments/training/profile.hpp"
#include "sim/sim_executor.hpp"

namespace dflop {
namespace {

using OperationKey = std::pair<std::string, std::string>;  // module, kind
using Operations = std::map<OperationKey, OperationFidelity>;

std::string module_of(const Stage& stage) {
  if (stage.encoder_layers == 0) return "llm";
  return stage.llm_layers == 0 ? "encoder" : "encoder+llm";
}

void add(Operations& operations, const OperationFidelity& more) {
  OperationFidelity& sum = operations[{more.module, more.kind}];
  sum.module = more.module;
  sum.kind = more.kind;
  sum.count += more.count;
  sum.predicted += more.predicted;
  sum.measured += more.measured;
}

std::vector<OperationFidelity> values_of(const Operations& operations) {
  std::vector<OperationFidelity> values;
  for (const auto& [key, value] : operations) values.push_back(value);
  return values;
}

/// Adds what one step's instructions, messages and reductions were predicted to take and took.
void add_step(Operations& operations, const Program& program, const ProgramCosts& predicted,
              const ProgramCosts& measured) {
  const auto stage_of = [&](std::int32_t group) -> const Stage& {
    return program.stages[static_cast<std::size_t>(program.groups[static_cast<std::size_t>(group)].stage)];
  };
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!is_compute(instruction.op) && instruction.op != Op::optimizer_step) continue;
    add(operations, {module_of(program.stages[instruction.stage]), std::string(to_string(instruction.op)), 1,
                     predicted.instruction[i], measured.instruction[i]});
  }
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    add(operations, {module_of(stage_of(program.messages[m].source)), "message", 1, predicted.message[m],
                     measured.message[m]});
  }
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    add(operations, {module_of(stage_of(program.collectives[c].groups.front())), "all_reduce", 1,
                     predicted.collective[c], measured.collective[c]});
  }
}

void add_ranks(std::vector<RankFidelity>& ranks, const Timeline& predicted, const Timeline& measured) {
  ranks.resize(measured.groups.size());
  for (std::size_t g = 0; g < ranks.size(); ++g) {
    RankFidelity& rank = ranks[g];
    rank.first_rank = measured.groups[g].first_rank;
    rank.predicted_peak = std::max(rank.predicted_peak, predicted.groups[g].peak_memory);
    rank.measured_peak = std::max(rank.measured_peak, measured.groups[g].peak_memory);
  }
}

Seconds median_of(const std::vector<StepFidelity>& steps, Seconds StepFidelity::*member) {
  std::vector<double> times;
  for (const StepFidelity& step : steps) times.push_back((step.*member).count());
  return Seconds(median(std::move(times)));
}

TrainingOptions training_options(const FidelityOptions& options) {
  TrainingOptions training;
  training.last_step = options.warm_up + options.steps;
  training.cores = options.device.cores;
  training.seed = options.seed;
  return training;
}

/// LiveSteps are what running a plan leaves.
struct LiveSteps {
  std::vector<Timeline> timelines;  // of the steps that count
  std::vector<ProfileTables> profiles;
};

LiveSteps run_live(const Plan& plan, const FidelityInput& input, const FidelityOptions& options,
                   const std::function<void()>& on_step) {
  const ModelSpec& model = input.target->model;
  const std::unique_ptr<World> world = make_live_world(options.device, plan.ranks());
  LiveExecutor executor(plan, model, *world, {options.dtype, options.seed});
  TrainingLoop training(plan, input.target, input.batches, options.scheduler, *world, executor,
                        training_options(options));
  const std::int64_t every = std::max<std::int64_t>(1, options.steps / kProfilesOfAPlan);
  LiveSteps live;
  training.run([&](const TrainingStep& step, Timeline&& timeline) {
    on_step();
    const std::int64_t counted = step.step - options.warm_up;
    if (counted <= 0) return true;
    live.timelines.push_back(std::move(timeline));
    if (input.profile == nullptr && (counted - 1) % every == 0) live.profiles.push_back(input.measure(plan));
    return true;
  });
  return live;
}

}  // namespace

Seconds PlanFidelity::measured() const {
  return median_of(steps, &StepFidelity::measured);
}
Seconds PlanFidelity::predicted() const {
  return median_of(steps, &StepFidelity::predicted);
}
Seconds PlanFidelity::replayed() const {
  return median_of(steps, &StepFidelity::replayed);
}

PlanFidelity study_plan(const NamedPlan& named, const FidelityInput& input, const FidelityOptions& options,
                        const std::function<void()>& on_step) {
  const HostLoad load;
  const LiveSteps live = run_live(named.plan, input, options, on_step);
  const ProfiledCostModel cost(input.profile != nullptr ? *input.profile : median_profile(live.profiles));
  const SimExecutor executor(Conditions{.cores = options.device.cores});
  PlanFidelity result{named, {}, {}, {}, load.others()};
  Operations operations;
  for (const Timeline& timeline : live.timelines) {
    const RecordedProgram recorded = recorded_program(timeline, "the recorded step", 0);
    const PricedProgram expected{recorded.program, cost.price(recorded.program)};
    const Timeline predicted = executor.run(expected, Detail::usage);
    const Timeline replayed = executor.run(recorded, Detail::usage);
    result.steps.push_back({timeline.makespan, predicted.makespan, replayed.makespan, idle_fraction(timeline),
                            idle_fraction(predicted), extrapolated_fraction(cost, recorded.program)});
    add_step(operations, recorded.program, expected.costs, recorded.costs);
    add_ranks(result.ranks, predicted, timeline);
  }
  result.operations = values_of(operations);
  return result;
}

std::vector<OperationFidelity> all_operations(const std::vector<PlanFidelity>& plans) {
  Operations operations;
  for (const PlanFidelity& plan : plans) {
    for (const OperationFidelity& operation : plan.operations) add(operations, operation);
  }
  return values_of(operations);
}

}  // namespace dflop
