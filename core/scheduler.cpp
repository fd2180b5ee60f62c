#include "core/scheduler.hpp"

#include <array>

namespace dflop {
namespace {

constexpr std::array<std::string_view, 3> kObjectives = {"published", "bins", "makespan"};
constexpr std::array<std::string_view, 4> kBoundKinds = {"none", "simple", "linear_program",
                                                         "integer_program"};
constexpr std::array<std::string_view, 6> kStatuses = {"heuristic",  "optimal",  "node_limit",
                                                       "time_limit", "fallback", "infeasible"};

}  // namespace

std::string_view to_string(Objective objective) {
  return kObjectives[static_cast<std::size_t>(objective)];
}

std::string_view to_string(BoundKind kind) {
  return kBoundKinds[static_cast<std::size_t>(kind)];
}

std::string_view to_string(ScheduleStatus status) {
  return kStatuses[static_cast<std::size_t>(status)];
}

std::optional<Objective> objective_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kObjectives.size(); ++i) {
    if (kObjectives[i] == name) return static_cast<Objective>(i);
  }
  return std::nullopt;
}

}  // namespace dflop
