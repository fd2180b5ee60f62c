#include "experiments/checks/runs/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "experiments/studies/what_if/replay_runs.hpp"

namespace dflop {
namespace {

/// Throws for a step that cannot be priced or compared.
void require_step(const Timeline& step, const std::string& file) {
  if (step.makespan.count() == 0)
    refuse_input(file,
                 "expected steps that take time, found one that takes "
                 "0 s");
  const char* what = nullptr;
  if (!knows_shapes(step.stage_shapes))
    what = "shapes of stages";
  else if (std::ranges::any_of(step.spans, [](const Span& s) { return is_compute(s.op) && s.work < 0; }))
    what = "the work of each forward and backward";
  if (what == nullptr) return;
  refuse_input(file, "expected {}, found none; 'dflop import' adds both with '--plan' and '--schedule'",
               what);
}

/// Throws if the profile does not belong to this recording; the error names the recording.
void require_profile_of(const TimelineFile& recording, const std::string& file, const NamedProfile& profile) {
  try {
    if (recording.made_by && recording.made_by->model)
      require_recorded_model(profile, *recording.made_by->model);
    for (const Timeline& step : recording.iterations) require_measured(profile, step.stage_shapes);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("recording '{}': {}", file, error.message()), profile.path);
  }
}

/// A RecordedModule holds the parallelism of one module's pipeline ranks, as far as a recording shows it.
struct RecordedModule {
  std::set<std::int32_t> stages;  // the first stage of each pipeline rank
  int tp = 1;
  int dp = 1;
};

/// Describes the plan of a recorded step in the style of describe(). The modules are listed separately if no
/// stage has layers of both.
std::string describe_recorded(const Timeline& step) {
  std::map<std::string, RecordedModule> modules;  // by the first word of the names of their stages: encoder,
                                                  // llm
  std::int32_t last = -1;
  for (const GroupUsage& group : step.groups) {
    const std::string& name = step.stages[static_cast<std::size_t>(group.stage)];
    const Stage& stage = step.stage_shapes[static_cast<std::size_t>(group.stage)];
    RecordedModule& module = modules[name.substr(0, name.find(' '))];
    module.stages.insert(group.stage);
    module.tp = stage.tp;
    module.dp = stage.dp;
  }
  for (const Span& span : step.spans) last = std::max(last, span.microbatch);
  std::string text;
  for (const auto& [name, module] : modules) {
    if (!text.empty()) text += " | ";
    if (name == "encoder") text += "E ";
    if (name == "llm") text += "L ";
    text += fmt::format("tp{} pp{} dp{}", module.tp, module.stages.size(), module.dp);
  }
  return fmt::format("{} mb{}", text, last + 1);
}

}  // namespace

PlanFidelity judge_recording(const TimelineFile& recording, const std::string& file,
                             const NamedProfile& profile, bool extrapolate) {
  for (const Timeline& step : recording.iterations) require_step(step, file);
  require_profile_of(recording, file, profile);
  const int first = begins_with_warm_up(recording) ? 1 : 0;
  const std::span steps(recording.iterations.begin() + first, recording.iterations.end());
  const ProfiledCostModel cost(profile.tables);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const RecordedProgram recorded = recorded_program(steps[s], file, first + static_cast<int>(s));
    require_reach(cost, cost.reach(recorded.program), profile.path, extrapolate);
  }
  PlanFidelity result = judge_steps(file, describe_recorded(steps.front()), steps, cost, file, first);
  if (recording.made_by && recording.made_by->machine) result.others = recording.made_by->machine->others;
  return result;
}

}  // namespace dflop
