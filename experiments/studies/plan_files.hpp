// PlanFiles are a plan and its schedule, read from files and checked against each other.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/plan.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/provenance.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {

/// PlanFiles holds a plan and its schedule, read from files, and the target that the plan runs on.
struct PlanFiles {
  /// Reads the plan and the schedule. Applies `change` to the cluster first.
  /// @throws Error (input) for a file that cannot be read, for a plan that does not fit its model, and for a
  /// schedule that does not fit the plan
  PlanFiles(const std::string& plan_file, const std::string& schedule_file,
            const std::function<void(ClusterSpec&)>& change = {}, const NamedProfile* profile = nullptr);

 private:
  PlanFiles(const std::string& plan_file, const std::string& plan_text, const std::string& schedule_file,
            const std::function<void(ClusterSpec&)>& change, const NamedProfile* profile);

 public:
  Plan plan;
  ScheduleFile schedule;
  Target target;
  std::optional<Provenance> plan_made_by;
};

/// Checks a schedule of a plan of this model. `file` names the schedule in errors.
/// @throws Error (input) if the schedule is for a different model than the plan, if its assignments do not
/// fit the plan, or if a sample needs an encoder that the model lacks
void validate(const ScheduleFile& schedule, const Plan& plan, const ModelSpec& model,
              const std::string& file);

}  // namespace dflop
