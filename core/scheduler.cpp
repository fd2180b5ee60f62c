#include "core/scheduler.hpp"

#include <array>

namespace dflop {
namespace {

constexpr std::array<std::string_view, 5> kStatuses = {"heuristic", "optimal", "node_limit", "time_limit",
                                                       "fallback"};

}  // namespace

std::string_view to_string(ScheduleStatus status) {
  return kStatuses[static_cast<std::size_t>(status)];
}

std::optional<ScheduleStatus> schedule_status_from_string(std::string_view name) {
  for (std::size_t i = 0; i < kStatuses.size(); ++i) {
    if (kStatuses[i] == name) return static_cast<ScheduleStatus>(i);
  }
  return std::nullopt;
}

}  // namespace dflop
