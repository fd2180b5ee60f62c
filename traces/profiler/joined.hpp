// This file turns recorded steps of ranks that meet in collectives, as in DDP and FSDP, into timelines that
// can be replayed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/timeline.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

/// Returns why steps of these traces cannot be replayed as compute and joined collectives: fewer than two
/// ranks with kernels, a rank without kernels, messages from rank to rank, which need the ranges of a
/// pipeline, or no collective recorded on two ranks. Returns nullopt if they can be replayed.
std::optional<std::string> why_not_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// Makes a timeline of each step that all ranks have. Each rank is a group; it computes one piece between
/// each two successive times at which it enters a collective or waits for one.
///
/// A rank computes while one of its kernels or copies runs, and also while none runs and it waits for no
/// collective: pieces include the gaps between kernels and the delays by the host.
///
/// A rank waits for a collective
///   - in a gap between kernels in which the collective ends. The wait lasts from the begin of the gap or of
///     the collective, whichever is later, to the collective's end, and must be at least kMinJoinedWait. If
///     several collectives end in one gap, only the last counts, and those at whose end another collective
///     begins. A collective does not count if the host launched the next kernel after the collective had
///     ended and was not waiting for the device;
///   - before its optimizer, for all collectives that have ended by then;
///   - at the end of the step, for all others.
///
/// A rank enters a collective when its kernel starts. If the kernel follows another collective on its stream,
/// the rank enters when it has computed everything that was launched before the kernel. The duration of a
/// collective is the duration of its shortest kernel. If an earlier-ending collective of the same ranks still
/// runs on another stream, it takes only the time from the end of that one to its own end. Collectives of
/// different ranks overlap, because each process group has its own stream.
///
/// A rank's step begins at the end of its previous step, at that step's last activity, so that late ranks do
/// not lose time twice; a gap between steps, such as waiting for data, belongs to the later step. The first
/// step begins for all ranks with the first kernel of any of them. The makespan is the longest measured step
/// of a rank; the spans come from running the pieces. Pieces have the op optimizer_step, because they belong
/// to no stage or microbatch. A collective other than an all-reduce counts half its bytes, because it moves
/// half as much as an all-reduce of that size.
/// @pre why_not_joined() returns nothing
PipelineImport import_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// Shorter waits than this count as gaps between kernels.
inline constexpr Nanoseconds kMinJoinedWait{10'000};

}  // namespace dflop
