// This example simulates an iteration of a plan made by hand, makes a program only from its recording, and
// runs that program again: unchanged, with one slow rank, and with links of half the bandwidth. To run it, in
// the project's folder:
//
//   build/release/examples/replay_what_if
#include <fmt/format.h>

#include <vector>

#include "core/iteration/iteration.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/target.hpp"
#include "sim/conditions.hpp"
#include "solver/schedulers/schedulers.hpp"

int main() {
  using namespace dflop;
  const Target target("llava-ov-llama3-8b", "a100-80g");
  PreprocessOptions options;
  options.rule = target.model.preprocess;
  options.max_tokens = target.model.max_tokens;
  const std::vector<Sample> samples = load_samples("traces/datasets/vision_mix.csv", options);
  const Batch batch = make_batches(samples, 32, 1, 1).front();

  // Ranks 0 to 3 run the encoder, each with a full copy. Ranks 4 to 7 run the LLM, as a pipeline of two
  // stages with two GPUs each.
  Plan plan;
  plan.planner = "by hand";
  plan.model = target.model.name;
  plan.cluster = target.cluster.name;
  plan.gbs = static_cast<int>(batch.size());
  plan.encoder = {.tp = 1, .pp = 1, .dp = 4, .layers = {target.model.encoder.layers}};
  plan.llm = {.tp = 2, .pp = 2, .dp = 1, .layers = split_layers(target.model.llm.layers, 2)};
  plan.microbatches = 8;
  validate(plan, target.model, target.cluster);

  const Assignment assignment = random_assignment(batch.size(), plan, 1, 0);
  const Iteration iteration = make_iteration(target.problem(), plan, batch, assignment);
  const SimExecutor executor;
  const Timeline timeline = executor.run(iteration, Detail::spans);

  // From here on only the timeline is used. It could as well come from a run on GPUs.
  const RecordedProgram recording = recorded_program(timeline);
  const auto show = [&](const char* what, const PricedProgram& priced) {
    const Nanoseconds makespan = executor.run(priced, Detail::usage).makespan;
    fmt::print("{:22} {:.3f} s, {:.3f} of the recording\n", what, Seconds(makespan).count(),
               Seconds(makespan) / Seconds(timeline.makespan));
  };
  show("replayed", recording);

  PricedProgram slow_rank = recording;
  slow_down(slow_rank.costs, slow_rank.program, group_of_rank(slow_rank.program, 4), 1.5);
  show("rank 4 1.5x slower", slow_rank);

  PricedProgram slow_network = recording;
  slow_links(slow_network.costs, slow_network.program,
             std::vector<double>(slow_network.program.groups.size(), 0.5));
  show("half the bandwidth", slow_network);
  return 0;
}
