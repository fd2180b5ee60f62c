#include "core/support/core_gate.hpp"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>

namespace dflop {

std::int32_t CoreGate::add_group(std::int32_t ranks) {
  needs_.push_back(std::min(ranks, cores_));
  return static_cast<std::int32_t>(needs_.size()) - 1;
}

std::optional<std::int32_t> CoreGate::admit() {
  if (waiting_.empty()) return std::nullopt;
  const std::int32_t first = waiting_.front();
  if (cores_of(first) > free_) return std::nullopt;
  waiting_.pop_front();
  free_ -= cores_of(first);
  return first;
}

void become_batch_work() {
#ifdef __linux__
  const sched_param none{};
  constexpr int kThisThread = 0;
  if (::sched_getscheduler(kThisThread) != SCHED_OTHER) return;
  static_cast<void>(::sched_setscheduler(kThisThread, SCHED_BATCH, &none));
#endif
}

}  // namespace dflop
