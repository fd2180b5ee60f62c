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
/// pipeline, or no collective recorded on two ranks. Returns nullopt if the steps can be replayed.
std::optional<std::string> why_not_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// Makes a timeline of each step that all ranks have. Each rank is a group. Between two places where it
/// enters a collective or waits for one, it computes one piece.
///
/// A rank counts as computing unless it waits for a collective. So pieces include not only kernels and
/// copies, but also the gaps between kernels and the delays by the host.
///
/// A rank waits for a collective
///   - in a gap between kernels in which the collective ends. The wait lasts from the begin of the gap or of
///     the collective, whichever is later, to the collective's end; it must last at least kMinJoinedWait. If
///     several collectives end in one gap, the rank waits only for the last one, and for those at whose end
///     another collective begins. There is no wait if the host launched the next kernel only after the
///     collective's end and did not wait for the device;
///   - before its optimizer, for all collectives that have ended by then;
///   - at the end of the step, for all others.
///
/// A rank enters a collective when the collective's kernel starts. If the kernel directly follows another
/// collective on its stream, the rank enters once everything launched before the kernel is computed. The
/// duration of a collective is the duration of its shortest kernel. If it overlaps with a collective of the
/// same ranks that ends earlier, its duration is at most the time from that earlier end to its own end.
/// Collectives of different ranks overlap, because each process group has its own stream.
///
/// A rank's step begins when the last activity of its previous step ends, so that late ranks do not lose time
/// twice. A gap between steps, such as waiting for data, belongs to the later step. The first step begins for
/// all ranks with the first kernel of any of them. The makespan is the longest measured step of a rank; the
/// spans come from running the pieces. Pieces have the op optimizer_step, because they belong to no stage or
/// microbatch. For a collective other than an all-reduce, the timeline has half its bytes, because it moves
/// half as much as an all-reduce of that size.
/// @pre why_not_joined() returns nothing
PipelineImport import_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// Waits that are shorter than this count as gaps between kernels.
inline constexpr Nanoseconds kMinJoinedWait{10'000};

}  // namespace dflop
