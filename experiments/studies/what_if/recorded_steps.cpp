#include "experiments/studies/what_if/recorded_steps.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "experiments/studies/what_if/replay_runs.hpp"
#include "sim/step_sequence.hpp"
#include "traces/profiler/pipeline_layout.hpp"

namespace dflop {
namespace {

/// Returns the program of a step under its plan.
Program program_of(std::int64_t step, const Plan& plan, const ScheduleFile* schedule, const Target& target) {
  if (schedule == nullptr) return lower_without_work(plan, target.model);
  const std::size_t iteration = static_cast<std::size_t>(step) % schedule->iterations.size();
  const ScheduledIteration& scheduled = schedule->iterations[iteration];
  return lower(plan, target.model, scheduled.samples, scheduled.assignment);
}

Nanoseconds time_of(const PricedProgram& priced, StepStart* start) {
  return simulate_next(priced.program, priced.costs, Detail::usage, {}, start).makespan;
}

}  // namespace

void apply_plan(PipelineImport& pipeline, const std::string& file, const Plan& plan,
                const std::string& plan_file, const ScheduleFile* schedule, const Target& target) {
  if (plan.llm.tp > 1 || plan.encoder.tp > 1)
    refuse_input(plan_file,
                 "expected a plan with tp 1, because traces of the tp ranks of a stage are not "
                 "joined");
  std::vector<PipelineStep> kept;
  for (PipelineStep& step : pipeline.steps) {
    const Program program = program_of(step.number, plan, schedule, target);
    const auto contradiction = apply_layout(step.timeline, program, schedule != nullptr);
    if (!contradiction) {
      kept.push_back(std::move(step));
      continue;
    }
    pipeline.findings.push_back(
        {KinetoFindingKind::unlike_plan, 0, file,
         fmt::format("step {} does not match {}: {}", step.number, plan_file, *contradiction)});
  }
  pipeline.steps = std::move(kept);
}

std::vector<Nanoseconds> keep_what_replays(PipelineImport& pipeline, const std::string& file) {
  std::vector<PipelineStep> kept;
  std::vector<Nanoseconds> replayed;
  for (PipelineStep& step : pipeline.steps) {
    std::string why;
    try {
      const RecordedProgram program = recorded_program(step.timeline);
      StepStart start = start_of(step.timeline);
      const Nanoseconds taken = time_of(program, begin_apart(step.timeline) ? &start : nullptr);
      const double error = Seconds(taken) / Seconds(step.timeline.makespan) - 1;
      if (std::abs(error) <= kMaxReplayError) {
        kept.push_back(std::move(step));
        replayed.push_back(taken);
        continue;
      }
      why = fmt::format("the time of its unchanged replay differs by {:+.1f} %", 100 * error);
      if (error < 0 && !program.program.messages.empty()) why += kLateReceives;
    } catch (const Error& error) {
      why = error.what();
    }
    pipeline.findings.push_back(
        {KinetoFindingKind::inconsistent_step, 0, file,
         fmt::format("step {}: a replay does not reproduce it: {}", step.number, why)});
  }
  pipeline.steps = std::move(kept);
  return replayed;
}

std::optional<double> saved_as_others(const PipelineImport& joined, const std::vector<int>& ranks) {
  if (joined.steps.empty()) return std::nullopt;
  const ReplayChange change = as_others(ranks);
  const bool overlaps = joined.overlap > Nanoseconds(0);
  std::array<StepStart, 2> starts = {};
  if (overlaps) starts.fill(start_of(joined.steps.front().timeline));
  Seconds as_was(0);
  Seconds changed(0);
  for (const PipelineStep& step : joined.steps) {
    const RecordedProgram recorded = recorded_program(step.timeline);
    as_was += time_of(recorded, overlaps ? &starts[0] : nullptr);
    try {
      changed += time_of(change.apply(recorded, recorded, 0), overlaps ? &starts[1] : nullptr);
    } catch (const Error&) {  // ranks that do not enter any collective like the others
      return std::nullopt;
    }
  }
  if (as_was.count() <= 0) return std::nullopt;
  return 1 - changed / as_was;
}

void keep_consecutive(PipelineImport& pipeline, std::vector<Nanoseconds>& replayed, const std::string& file) {
  std::vector<PipelineStep>& steps = pipeline.steps;
  std::size_t best = 0;
  std::size_t length = 0;
  for (std::size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
    for (end = begin + 1; end < steps.size() && steps[end].number == steps[end - 1].number + 1;) ++end;
    if (end - begin > length) {
      best = begin;
      length = end - begin;
    }
  }
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (i >= best && i < best + length) continue;
    pipeline.findings.push_back({KinetoFindingKind::truncated_profile, 0, file,
                                 fmt::format("step {} is left out, because steps between it and step {} "
                                             "are missing",
                                             steps[i].number, steps[best].number)});
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
    replayed.erase(replayed.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < best) --best;
  }
}

}  // namespace dflop
