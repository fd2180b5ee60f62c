#include "solver/service/async_item.hpp"

namespace dflop {

void AsyncItem::fall_back(const std::string& reason) {
  if (improved || !best || best->status != ScheduleStatus::heuristic) return;
  best->status = ScheduleStatus::fallback;
  best->reason = reason;
}

bool feasible(const ScheduleResult& result) {
  return result.status != ScheduleStatus::infeasible;
}

bool replaces(const ScheduleResult& found, const std::optional<ScheduleResult>& best) {
  if (!best || !feasible(*best)) return true;
  if (!feasible(found)) return false;
  return found.objective != best->objective || found.c_max <= best->c_max;
}

}  // namespace dflop
