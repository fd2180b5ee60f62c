#include "experiments/replay_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/lowering.hpp"
#include "core/verify.hpp"
#include "sim/engine.hpp"

namespace dflop {
namespace {

void add(PriceSources& sum, const PriceSources& sources) {
  sum.exact += sources.exact;
  sum.by_shape += sources.by_shape;
  sum.scaled += sources.scaled;
}

/// Runs a program in place of the recorded one. Names and shapes of stages that the recording does not know
/// stay unknown.
Timeline run(const PricedPipeline& priced, const Timeline& recording, Detail detail) {
  Timeline timeline = simulate(priced.program, priced.costs, detail);
  if (recording.stage_shapes.empty() && timeline.stages.size() == recording.stages.size()) {
    timeline.stages = recording.stages;
    timeline.stage_shapes.clear();
  }
  return timeline;
}

PricedPipeline apply(const ReplayChange& change, const PricedPipeline& before,
                     const RecordedProgram& recorded, int iteration) {
  try {
    return change.apply(before, recorded, iteration);
  } catch (const Error& error) {
    throw Error(error.kind(), error.what(), "what-if '" + change.name + "'");
  }
}

bool has_activations(const ProgramCosts& costs) {
  return std::any_of(costs.activation.begin(), costs.activation.end(),
                     [](Bytes bytes) { return bytes > Bytes{}; });
}

bool has_whole_backwards(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(),
                     [](const Instruction& instruction) { return instruction.op == Op::backward; });
}

}  // namespace

ReplayChange other_plan(const std::string& name, const Plan& plan, const ScheduleFile& schedule,
                        const std::string& schedule_file, const Target& target, PricedParts& parts) {
  return {name, [=, &target, &parts](const PricedPipeline&, const RecordedProgram& recorded, int iteration) {
            if (static_cast<std::size_t>(iteration) >= schedule.iterations.size()) {
              throw Error(ErrorKind::input,
                          fmt::format("expected a schedule of iteration {}, found {} iterations", iteration,
                                      schedule.iterations.size()),
                          schedule_file);
            }
            const ScheduledIteration& scheduled = schedule.iterations[iteration];
            PricedPipeline result;
            result.program = lower(plan, target.model, scheduled.samples, scheduled.assignment);
            verify(result.program);
            PricedParts found;
            const RecordedCostModel cost(recorded, target.cost, target.cluster);
            result.costs = cost.price(result.program, found);
            add(parts.instructions, found.instructions);
            add(parts.messages, found.messages);
            add(parts.collectives, found.collectives);
            return result;
          }};
}

ReplayChange other_order(std::optional<PipelineSchedule> schedule, const Reordering& reordering) {
  std::string name = schedule ? std::string(to_string(*schedule)) : "";
  if (reordering.microbatches > 0) {
    name += fmt::format("{}{} microbatches", name.empty() ? "" : ", ", reordering.microbatches);
  }
  return {name, [=](const PricedPipeline& before, const RecordedProgram&, int) {
            const auto kind = schedule ? schedule : schedule_of(before.program, before.costs);
            if (!kind) {
              throw Error(ErrorKind::input,
                          "the order is that of no known schedule; '--pipeline-schedule' has to name one");
            }
            if (splits_backward(*kind) && !reordering.weight_share && has_whole_backwards(before.program)) {
              throw Error(
                  ErrorKind::input,
                  fmt::format("{} splits backwards, which are whole here; '--weight-share' has to say "
                              "how much of one is for the weights",
                              to_string(*kind)));
            }
            const StepOrder order = scheduled_order(before.program, before.costs, *kind, reordering);
            return reorder(before.program, before.costs, order, reordering);
          }};
}

ReplayChange other_links(double latency_scale, double bandwidth_scale,
                         const std::optional<ClusterSpec>& cluster) {
  return {fmt::format("latency x {}, bandwidth x {}", latency_scale, bandwidth_scale),
          [=](const PricedPipeline& before, const RecordedProgram&, int) {
            PricedPipeline result = before;
            rescale_links(result.program, result.costs, cluster, latency_scale, bandwidth_scale);
            return result;
          }};
}

std::vector<ReplayRun> replay_iteration(const Timeline& recording, const std::string& file, int iteration,
                                        const std::vector<ReplayChange>& changes, Detail detail) {
  const RecordedProgram recorded = recorded_program(recording, file, iteration);
  const auto detail_of = [&](std::size_t k) { return k == changes.size() ? detail : Detail::usage; };
  std::vector<ReplayRun> runs = {{"recorded", recording, true}};
  PricedPipeline priced{recorded.program, recorded.costs};
  runs.push_back({"replayed", run(priced, recording, detail_of(0)), recorded.memory});
  for (std::size_t k = 0; k < changes.size(); ++k) {
    priced = apply(changes[k], priced, recorded, iteration);
    const bool memory = recorded.memory || has_activations(priced.costs);
    runs.push_back({changes[k].name, run(priced, recording, detail_of(k + 1)), memory});
  }
  return runs;
}

}  // namespace dflop
