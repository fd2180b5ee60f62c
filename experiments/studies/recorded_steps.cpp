#include "experiments/studies/recorded_steps.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "sim/engine.hpp"

namespace dflop {

std::vector<Nanoseconds> keep_what_replays(PipelineImport& pipeline, const std::string& file) {
  std::vector<PipelineStep> kept;
  std::vector<Nanoseconds> replayed;
  for (PipelineStep& step : pipeline.steps) {
    std::string why;
    try {
      const RecordedProgram program = recorded_program(step.timeline);
      const Nanoseconds taken = simulate(program.program, program.costs, Detail::usage).makespan;
      const double error = Seconds(taken) / Seconds(step.timeline.makespan) - 1;
      if (std::abs(error) <= kMostReplayError) {
        kept.push_back(std::move(step));
        replayed.push_back(taken);
        continue;
      }
      why = fmt::format("replayed as it was it takes {:+.1f} %", 100 * error);
    } catch (const Error& error) {
      why = error.what();
    }
    pipeline.findings.push_back(
        {KinetoFindingKind::inconsistent_step, 0, file,
         fmt::format("step {}: its ranges and messages do not hang together: {}", step.number, why)});
  }
  pipeline.steps = std::move(kept);
  return replayed;
}

}  // namespace dflop
