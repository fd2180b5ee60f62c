// Pipeline schedules: the order of forwards and backwards on every rank of a pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// One step of a rank's schedule: a compute operation on one of its stages.
struct ScheduleStep {
  Op op = Op::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;

  bool operator==(const ScheduleStep&) const = default;
};

/// Order of forwards and backwards on `stage` of `stages`, one stage to a rank.
/// gpipe: all forwards, then all backwards in the same order.
/// 1f1b (Narayanan et al. 2021, PipeDream-Flush): stages - stage - 1 warm-up forwards, then one forward and
/// one backward in turn, then the remaining backwards.
std::vector<ScheduleStep> stage_schedule(PipelineSchedule schedule, int stage, int stages, int microbatches);

/// The schedules that a pipeline without a model can have; a plan has fewer, see PipelineSchedule.
enum class ScheduleKind : std::uint8_t { gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, zb_v };
inline constexpr int kScheduleKinds = 6;

std::string_view to_string(ScheduleKind kind);  ///< "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"

/// Whether backwards are split into input and weight parts.
constexpr bool splits_backward(ScheduleKind kind) {
  return kind >= ScheduleKind::zb_h1;
}

/// What a schedule is made for. The model is cut into ranks * chunks stages, numbered in model order.
struct PipelineShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int ranks = 1;
  int chunks = 1;  ///< stages of each rank: any for interleaved, 2 for zb-v, 1 for the others
  int microbatches = 1;

  int stages() const { return ranks * chunks; }
};

/// Most stages, and most stages x microbatches, of a pipeline without a model.
inline constexpr int kMostRawStages = 4096;
inline constexpr int kMostRawCells = 1 << 21;

/// `where` is the pipeline's place for errors, as the name of its file.
/// @throws Error (input) naming the key (of schema "dflop.pipeline") for numbers below 1 or above the limits,
/// chunks that the schedule cannot have, or microbatches of an interleaved one that are no multiple of the
/// ranks.
void validate(const PipelineShape& shape, const std::string& where = "pipeline");

/// The rank of a stage: round robin, but for zb-v down the ranks and up again (stage s of 2p on rank s, for
/// s >= p on rank 2p - 1 - s).
int rank_of_stage(const PipelineShape& shape, int stage);

/// How long the steps of a pipeline take, for the schedules whose order depends on it. Indexed by
/// stage * microbatches + microbatch.
struct StepTimes {
  std::vector<Nanoseconds> forward;
  std::vector<Nanoseconds> backward;         ///< the input part where backwards are split
  std::vector<Nanoseconds> backward_weight;  ///< empty where they are not
  std::vector<Nanoseconds> message;          ///< between a stage and the next, either way
};

/// The steps of every rank, in order. Whatever the times, running them in this order ends.
///
/// gpipe, 1f1b: as stage_schedule().
/// interleaved (Narayanan et al. 2021): ranks in turn run `ranks` microbatches of a chunk, then of the next;
/// 2 (ranks - rank - 1) + (chunks - 1) ranks warm-up forwards; 1f1b for one chunk.
/// zb-h1 (Qi et al. 2023): 1f1b whose weight parts lag `rank` microbatches behind the input parts. No rank
/// holds more than `ranks` microbatches, as much as the first rank of 1f1b.
/// zb-h2 (same): 2 (ranks - rank - 1) warm-up forwards and a lag of 2 rank; at most 2 ranks - 1 microbatches
/// held. With fewer than these, which leave holes in the deeper warm-up, it is zb-h1.
/// zb-v (same): the greedy order of greedy_steps() with at most 2 ranks chunks of microbatches, again the
/// memory of 1f1b.
///
/// Only zb-v reads `times`.
/// @throws Error (input) as validate().
std::vector<std::vector<ScheduleStep>> pipeline_steps(const PipelineShape& shape, const StepTimes& times);

}  // namespace dflop
