#include "core/support/core_gate.hpp"

#include <algorithm>

namespace dflop {

std::int32_t CoreGate::add_group(std::int32_t ranks) {
  needs_.push_back(std::min(ranks, cores_));
  return static_cast<std::int32_t>(needs_.size()) - 1;
}

void CoreGate::ask(std::int32_t group) {
  waiting_.push_back(group);
}

std::optional<std::int32_t> CoreGate::admit() {
  if (waiting_.empty()) return std::nullopt;
  const std::int32_t first = waiting_.front();
  if (cores_of(first) > free_) return std::nullopt;
  waiting_.pop_front();
  free_ -= cores_of(first);
  return first;
}

void CoreGate::give_back(std::int32_t group) {
  free_ += cores_of(group);
}

}  // namespace dflop
