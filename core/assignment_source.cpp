#include "core/assignment_source.hpp"

#include <array>

namespace dflop {

std::string_view to_string(ScheduleEventKind kind) {
  constexpr std::array<std::string_view, 3> kKinds = {"solver_failed", "solver_stalled", "late"};
  return kKinds[static_cast<std::size_t>(kind)];
}

}  // namespace dflop
