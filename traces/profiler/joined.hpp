// Steps of ranks that meet in collectives, as those of DDP and FSDP, become timelines that can be replayed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/timeline.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

/// Returns why steps of these traces cannot be replayed by compute and joined collectives: fewer than two
/// ranks with kernels, or one without, messages from rank to rank, which need the ranges of a pipeline, or no
/// collective that is recorded on two ranks. Nothing where they can.
std::optional<std::string> why_not_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// Makes a timeline of each step that all ranks have: a group for each rank, what it computes in one piece
/// between two places where it enters a collective or waits for one, and the collectives.
///
/// A rank computes where one of its kernels or copies runs, and where none does and it waits for no
/// collective: gaps between kernels and what the host holds up are part of the pieces. It waits in a gap
/// between kernels in which a collective ends, from the gap's begin or the collective's on, for
/// kLeastJoinedWait at least, for the last one in the gap and such at whose end another begins, unless the
/// host launched the next kernel after the collective had ended and was not waiting for the device; before
/// its optimizer, for all collectives that have ended then; and at the end of the step, for all others. It
/// enters a collective where that one's kernel starts or, where that follows another one on its stream, where
/// all is computed that was launched before it. A collective takes as long as its shortest kernel, or, where
/// one of the same ranks that ends before it is still running on a stream beside it, from that one's end to
/// its own. Those of other ranks run beside it, as each process group has its stream.
///
/// A rank's step begins where its own step before it ends, at its last activity, so that ranks that come late
/// have not lost time twice, and a gap between steps, as in which a rank waits for its data, belongs to the
/// second. The first step begins for all ranks together, with the first kernel of any of them. The makespan
/// is the longest such step, as it was measured; spans are where a run of the pieces has them. Pieces are of
/// the op optimizer_step, as they are of no stage and microbatch. Of a collective other than an all-reduce
/// the bytes are half, as it moves half of what an all-reduce of that size moves.
/// @pre why_not_joined() knows no reason
PipelineImport import_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// A gap in which a rank has less than this to wait is one between kernels.
inline constexpr Nanoseconds kLeastJoinedWait{10'000};

}  // namespace dflop
