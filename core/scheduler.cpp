#include "core/scheduler.hpp"

namespace dflop {

std::string_view to_string(Objective objective) {
  switch (objective) {
    case Objective::published:
      return "published";
    case Objective::bins:
      return "bins";
    case Objective::makespan:
      return "makespan";
  }
  return "";
}

std::optional<Objective> objective_from_string(std::string_view name) {
  for (const Objective objective : {Objective::published, Objective::bins, Objective::makespan}) {
    if (to_string(objective) == name) return objective;
  }
  return std::nullopt;
}

std::string_view to_string(ScheduleEventKind kind) {
  switch (kind) {
    case ScheduleEventKind::solver_failed:
      return "solver_failed";
    case ScheduleEventKind::solver_stalled:
      return "solver_stalled";
    case ScheduleEventKind::late:
      return "late";
  }
  return "";
}

}  // namespace dflop
