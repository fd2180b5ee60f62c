// lower(): Plan + Assignment -> Program, and the pipeline schedules it follows.
#pragma once

#include <cstdint>
#include <span>
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

/// The stages of a plan, encoder first. The plan must be valid.
std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model);

/// Gradient and parameter bookkeeping: parameters of a stage on one of its ranks.
std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model);

/// Lowers a valid plan and assignment of one batch to a Program.
///
/// Microbatch j of a disaggregated plan: the samples that all LLM dp ranks have in j are cut into encoder
/// sequences and shared over the encoder's dp ranks in sample order, each rank getting a contiguous piece of
/// equal FLOP to within one sequence. Encoder outputs go from the rank that made them to the LLM dp rank
/// whose sample needs them, and gradients go back the same way. A uniform plan encodes a sample where its LLM
/// dp rank is. Messages without bytes are left out. After the last backward each stage reduces its gradients
/// over dp (fp32, 4 bytes a parameter) and takes an optimizer step.
/// @throws Error (input) if the assignment does not fit the plan and batch.
Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment);

/// Checks a Program, whoever made it: indices in range, every message sent once and received once by the
/// groups it names and in the same order on each channel, each microbatch once forward and then backward on
/// every stage of a group (so that what a forward keeps is freed), every collective entered once by each
/// participant, and no deadlock with asynchronous sends.
/// @throws Error (input) naming the group and instruction.
void verify(const Program& program);

}  // namespace dflop
