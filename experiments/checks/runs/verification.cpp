#include "experiments/checks/runs/verification.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/run/live_executor.hpp"
#include "core/refuse.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/made_by.hpp"
#include "sim/engine.hpp"

namespace dflop {
namespace {

/// A LiveVariant holds a variant with everything needed to run and predict it.
class LiveVariant {
 public:
  LiveVariant(std::size_t index, const Variant& variant, const VerificationInput& input,
              const VerificationOptions& options)
      : index_(index),
        variant_(variant),
        input_(input),
        world_(make_live_world(options.device, variant.plan)),
        simulator_(Conditions{.cores = world_->cores()}),
        executor_(variant.plan, input.target->model, *world_, {options.dtype, options.seed}) {
    SchedulerChoice choice = options.scheduler;
    choice.cost = &input.cost(index, 0);
    schedule_ = schedule_batches(variant.plan, *input.target, input.batches, choice, options.seed);
    const ScheduledIteration& last = schedule_.iterations.back();
    if (!last.feasible()) {
      refuse_input("", "plan '{}': no schedule of batch {} obeys the caps: {}", variant.name,
                   schedule_.iterations.size() - 1, last.reason);
    }
    run_.variant = variant;
  }

  /// Simulates a batch; stores the results if it counts.
  void predict(std::size_t batch, bool counts) {
    const Iteration iteration = make(batch);
    ProgramCosts costs = iteration.costs;
    const std::vector<Nanoseconds> longer = delays(iteration);
    for (std::size_t i = 0; i < longer.size(); ++i) costs.set_duration(i, costs.instruction[i] + longer[i]);
    const Timeline timeline =
        simulator_.run(PricedProgram{iteration.program, std::move(costs)}, Detail::usage);
    if (timeline.makespan <= Nanoseconds(0)) {
      refuse_input(
          "", "plan '{}': its predicted step takes no time, expected a recording or profile with durations",
          variant_.name);
    }
    if (!counts) return;
    run_.predicted.push_back(timeline.makespan);
    add(run_.predicted_times, timeline);
  }

  /// Runs a batch live; stores the results if it counts.
  void step(std::size_t batch, bool counts) {
    const Iteration iteration = make(batch);
    const std::vector<Nanoseconds> longer = delays(iteration);
    StepOptions options;
    options.optimizer.learning_rate = kLearningRate;
    options.optimizer.step = static_cast<std::int64_t>(batch) + 1;
    options.delays = longer;
    const Timeline timeline = executor_.step(iteration, options).timeline;
    if (!counts) return;
    run_.measured.push_back(timeline.makespan);
    add(run_.measured_times, timeline);
    if (variant_.slow) return;  // the measured times include its delays, but no cost model does
    const RecordedProgram recorded = recorded_program(timeline, "the recorded step", 0);
    add_operations(run_.operations, recorded.program, input_.cost(index_, batch).price(recorded.program),
                   recorded.costs);
  }

  /// Returns the results of the variant, with sums turned into means.
  VariantRun take() {
    for (RankTimes* times : {&run_.predicted_times, &run_.measured_times}) {
      for (Seconds* time : {&times->busy, &times->bubble, &times->wait}) {
        *time /= static_cast<double>(run_.measured.size());
      }
    }
    return std::move(run_);
  }

 private:
  static constexpr double kLearningRate = 1e-3;

  Iteration make(std::size_t batch) const {
    const Target& target = *input_.target;
    return make_iteration({target.model, target.cluster, input_.cost(index_, batch)}, variant_.plan,
                          input_.batches[batch], schedule_.iterations[batch].assignment);
  }

  /// Returns the extra time of each instruction of the slow rank; empty if there is none.
  std::vector<Nanoseconds> delays(const Iteration& iteration) const {
    if (!variant_.slow) return {};
    const Program& program = iteration.program;
    const auto group = std::find_if(program.groups.begin(), program.groups.end(),
                                    [&](const Group& g) { return g.first_rank == variant_.slow->rank; });
    if (group == program.groups.end()) {
      std::string ranks;
      for (const Group& g : program.groups)
        ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", g.first_rank);
      refuse_value("slow", "a rank that begins a tp group of the first plan: " + ranks,
                   std::to_string(variant_.slow->rank));
    }
    std::vector<Nanoseconds> longer(program.instructions.size(), Nanoseconds(0));
    for (std::int64_t i = group->begin; i < group->end; ++i) {
      if (!is_compute(program.instructions[i].op)) continue;
      longer[i] = to_nanoseconds(Seconds(iteration.costs.instruction[i]) * (variant_.slow->factor - 1));
    }
    return longer;
  }

  /// Adds the means over ranks of one step.
  static void add(RankTimes& times, const Timeline& timeline) {
    double ranks = 0;
    for (const GroupUsage& group : timeline.groups) ranks += group.ranks;
    for (const GroupUsage& group : timeline.groups) {
      const double share = group.ranks / ranks;
      times.busy += Seconds(group.busy) * share;
      times.bubble += Seconds(group.bubble) * share;
      times.wait += Seconds(group.wait) * share;
    }
  }

  std::size_t index_;
  const Variant& variant_;
  const VerificationInput& input_;
  std::unique_ptr<World> world_;
  SimExecutor simulator_;
  LiveExecutor executor_;
  ScheduleFile schedule_;
  VariantRun run_;
};

std::vector<double> seconds_of(const std::vector<Seconds>& times) {
  std::vector<double> seconds;
  for (const Seconds time : times) seconds.push_back(time.count());
  return seconds;
}

std::vector<double> blocks(const std::vector<Seconds>& first, const std::vector<Seconds>& second) {
  return paired_blocks(seconds_of(first), seconds_of(second));
}

}  // namespace

Verification verify_live(const std::vector<Variant>& variants, const VerificationInput& input,
                         const VerificationOptions& options, const std::function<void()>& on_step) {
  std::vector<std::unique_ptr<LiveVariant>> live;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    live.push_back(std::make_unique<LiveVariant>(v, variants[v], input, options));
  }
  const auto counts = [&](std::size_t batch) { return batch >= static_cast<std::size_t>(options.warm_up); };
  for (std::size_t batch = 0; batch < input.batches.size(); ++batch) {
    for (const auto& variant : live) variant->predict(batch, counts(batch));
  }
  Verification result;
  result.options = options.judge;
  const HostLoad load;
  for (std::size_t batch = 0; batch < input.batches.size(); ++batch) {
    for (std::size_t v = 0; v < live.size(); ++v) {
      live[batch % 2 == 0 ? v : live.size() - 1 - v]->step(batch, counts(batch));
      on_step();
    }
  }
  result.others = load.others();
  for (const auto& variant : live) result.runs.push_back(variant->take());
  const VariantRun& base = result.runs.front();
  for (std::size_t v = 1; v < result.runs.size(); ++v) {
    const VariantRun& run = result.runs[v];
    result.judgments.push_back(
        judge(blocks(base.measured, run.measured), blocks(base.predicted, run.predicted), options.judge));
  }
  return result;
}

}  // namespace dflop
