// This example simulates one training iteration with a model and a cluster by name, a plan from a planner,
// and one batch of a data set. It prints the time of the iteration. To run it, in the project's folder:
//
//   build/release/examples/one_iteration
#include <fmt/format.h>

#include "core/iteration/iteration.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/target.hpp"
#include "sim/engine.hpp"
#include "solver/schedulers/schedulers.hpp"

int main() {
  using namespace dflop;
  constexpr int kGbs = 64;
  constexpr std::uint64_t kSeed = 1;

  // A Target is a model on a cluster (here two nodes of 8 GPUs) with the analytic cost model.
  const Target target("llava-ov-llama3-8b", "a100-80g:2");

  // Preprocessing makes samples from the records of the data set, which contain only shapes.
  PreprocessOptions options;
  options.rule = target.model.preprocess;
  options.max_tokens = target.model.max_tokens;
  const std::vector<Sample> samples = load_samples("traces/datasets/vision_mix.csv", options);
  const Batch batch = make_batches(samples, kGbs, 1, kSeed).front();

  // A Planner splits the model over the GPUs. This one considers the load from the samples.
  const PlanResult planned = make_plan("dflop", {target, samples, {batch}, kGbs, kSeed});
  if (!planned.plan) {
    fmt::print("no plan fits: {}\n", planned.infeasible_reason);
    return 1;
  }
  const Plan& plan = *planned.plan;

  // A Scheduler assigns the samples of the batch to microbatches.
  const ScheduleResult schedule = make_scheduler("lpt")->schedule({batch, plan, target.model, target.cost});

  // The Iteration is ordered, lowered to a program and priced. Any Executor can run it.
  const Iteration iteration = make_iteration(target.problem(), plan, batch, schedule.assignment);
  const Timeline timeline = SimExecutor().run(iteration, Detail::usage);
  fmt::print("plan      {}\n", describe(plan));
  fmt::print("makespan  {:.3f} s\n", Seconds(timeline.makespan).count());
  fmt::print("idle      {:.1f} %\n", 100 * idle_fraction(timeline));
  return 0;
}
