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

}  // namespace dflop
