#include "experiments/studies/plan_files.hpp"

#include <fmt/format.h>

#include "core/missing_encoder.hpp"
#include "core/refuse.hpp"
#include "experiments/studies/made_by.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

PlanFiles::PlanFiles(const std::string& plan_file, const std::string& schedule_file,
                     const std::function<void(ClusterSpec&)>& change, const NamedProfile* profile)
    : PlanFiles(plan_file, read_text_file(plan_file), schedule_file, change, profile) {}

PlanFiles::PlanFiles(const std::string& plan_file, const std::string& plan_text,
                     const std::string& schedule_file, const std::function<void(ClusterSpec&)>& change,
                     const NamedProfile* profile)
    : plan(parse_plan(plan_text, plan_file)),
      schedule(parse_schedule(read_text_file(schedule_file), schedule_file)),
      target(plan.model, plan.cluster, plan_file, change, profile),
      plan_made_by(parse_provenance(plan_text, plan_file)) {
  validate(plan, target.model, target.cluster, plan_file);
  validate(schedule, plan, target.model, schedule_file);
  if (profile == nullptr) note_profile_of(plan_file, plan_made_by);
  note_changed_files(plan_file, plan_made_by, target);
  if (profile != nullptr) require_measured(*profile, plan, target.model);
}

void validate(const ScheduleFile& schedule, const Plan& plan, const ModelSpec& model,
              const std::string& file) {
  if (schedule.model != plan.model) {
    refuse_input(file, "expected a schedule of the plan's model '{}', found '{}'", plan.model,
                 schedule.model);
  }
  for (std::size_t k = 0; k < schedule.iterations.size(); ++k) {
    const ScheduledIteration& iteration = schedule.iterations[k];
    const std::string place = fmt::format("{}: iteration {}", file, k);
    validate(iteration.assignment, plan, iteration.samples.size(), place);
    for (const Sample& sample : iteration.samples) {
      if (const std::string missing = missing_encoder(model, sample); !missing.empty())
        throw Error(ErrorKind::input, missing, place);
    }
  }
}

}  // namespace dflop
