// These functions combine Workloads count by count.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sample.hpp"

namespace dflop {

/// Returns the workload whose every count is `count()` of the same count of the given workloads.
template <typename Count, typename... Workloads>
Workload each_count(const Count& count, const Workloads&... work) {
  return {
      count(work.sequences...),
      count(work.tokens...),
      count(work.attention_pairs...),
      count(work.untrained_tokens...),
      {count(work.second.sequences...), count(work.second.tokens...), count(work.second.attention_pairs...)}};
}

/// Returns, for each count, the smaller one of two workloads. For untrained tokens it returns the larger
/// count, because untrained tokens shorten a pass.
inline Workload least(const Workload& a, const Workload& b) {
  Workload work = each_count([](std::int64_t x, std::int64_t y) { return std::min(x, y); }, a, b);
  work.untrained_tokens = std::max(a.untrained_tokens, b.untrained_tokens);
  return work;
}

/// Returns, for each count, the larger one of two workloads. For untrained tokens it returns the smaller
/// count, because untrained tokens shorten a pass.
inline Workload most(const Workload& a, const Workload& b) {
  Workload work = each_count([](std::int64_t x, std::int64_t y) { return std::max(x, y); }, a, b);
  work.untrained_tokens = std::min(a.untrained_tokens, b.untrained_tokens);
  return work;
}

}  // namespace dflop
