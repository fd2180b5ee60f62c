// These functions compute Works: counts taken together, and the part of a Work that a stage does.
#pragma once

#include <algorithm>
#include <cstdint>

#include "costmodel/sample_costs.hpp"

namespace dflop {

/// Returns the workload whose counts are `count()` of those of some workloads.
template <typename Count, typename... Workloads>
Workload each_count(const Count& count, const Workloads&... work) {
  return {count(work.sequences...), count(work.tokens...), count(work.attention_pairs...),
          count(work.untrained_tokens...)};
}

/// Returns the smaller of each count of two workloads; of untrained tokens, which shorten a pass, the larger.
inline Workload least(const Workload& a, const Workload& b) {
  Workload work = each_count([](std::int64_t x, std::int64_t y) { return std::min(x, y); }, a, b);
  work.untrained_tokens = std::max(a.untrained_tokens, b.untrained_tokens);
  return work;
}

/// Returns the larger of each count of two workloads; of untrained tokens the smaller.
inline Workload most(const Workload& a, const Workload& b) {
  Workload work = each_count([](std::int64_t x, std::int64_t y) { return std::max(x, y); }, a, b);
  work.untrained_tokens = std::min(a.untrained_tokens, b.untrained_tokens);
  return work;
}

/// Returns the part of a work that a stage does: that of the modules of which it has layers.
inline Work work_of_stage(const Stage& stage, const Work& work) {
  return {stage.encoder_layers > 0 ? work.encoder : Workload{}, stage.llm_layers > 0 ? work.llm : Workload{}};
}

}  // namespace dflop
