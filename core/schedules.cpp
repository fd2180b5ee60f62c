#include "core/schedules.hpp"

#include <algorithm>

namespace dflop {
namespace {

std::vector<ScheduleStep> gpipe(int microbatches) {
  std::vector<ScheduleStep> steps;
  for (int j = 0; j < microbatches; ++j) steps.push_back({Op::forward, j});
  for (int j = 0; j < microbatches; ++j) steps.push_back({Op::backward, j});
  return steps;
}

std::vector<ScheduleStep> one_f_one_b(int stage, int stages, int microbatches) {
  const int warm_up = std::min(stages - stage - 1, microbatches);
  std::vector<ScheduleStep> steps;
  for (int j = 0; j < warm_up; ++j) steps.push_back({Op::forward, j});
  for (int j = 0; j < microbatches; ++j) {
    if (warm_up + j < microbatches) steps.push_back({Op::forward, warm_up + j});
    steps.push_back({Op::backward, j});
  }
  return steps;
}

}  // namespace

std::vector<ScheduleStep> stage_schedule(PipelineSchedule schedule, int stage, int stages, int microbatches) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return gpipe(microbatches);
    case PipelineSchedule::one_f_one_b:
      break;
  }
  return one_f_one_b(stage, stages, microbatches);
}

}  // namespace dflop
