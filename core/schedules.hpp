// Pipeline schedules: the order of forwards and backwards on one stage.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// One step of a stage's schedule.
struct ScheduleStep {
  Op op = Op::forward;
  std::int32_t microbatch = 0;

  bool operator==(const ScheduleStep&) const = default;
};

/// Order of forwards and backwards on `stage` of `stages`.
/// gpipe: all forwards, then all backwards in the same order.
/// 1f1b (Narayanan et al. 2021, PipeDream-Flush): stages - stage - 1 warm-up forwards, then one forward and
/// one backward in turn, then the remaining backwards.
std::vector<ScheduleStep> stage_schedule(PipelineSchedule schedule, int stage, int stages, int microbatches);

}  // namespace dflop
