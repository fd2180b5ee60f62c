// These tables show how the ranks of PyTorch-profiler traces spent their steps: usage by step, stream and
// process group, and the steps as timelines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/timeline.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

/// A KinetoWindow is the part of a trace's device time that belongs to a step: from the first activity that
/// the step launched to the first activity of the next step. The last window ends with the last activity of
/// its step. If the trace has no steps, one window covers everything.
struct KinetoWindow {
  std::int32_t step = -1;  ///< index into KinetoTrace::steps; -1 without steps
  Nanoseconds begin{0};
  Nanoseconds end{0};
};

/// Returns one window per step that launched something, in order; they do not overlap.
std::vector<KinetoWindow> device_windows(const KinetoTrace& trace);

/// A KinetoStepUsage says how one step was spent. Each member is the time during which at least one activity
/// of its kind runs. busy + idle = end - begin.
struct KinetoStepUsage {
  KinetoWindow window;
  std::optional<Nanoseconds> host;  ///< ProfilerStep#N's own duration
  Nanoseconds busy{0};              ///< any activity
  Nanoseconds compute{0};
  Nanoseconds communication{0};
  Nanoseconds exposed{0};  ///< communication while no compute kernel runs
  Nanoseconds copy{0};     ///< memcpy and memset
  Nanoseconds idle{0};
  Nanoseconds phases[4] = {};  ///< compute kernels by KinetoPhase
  std::int64_t activities = 0;
};

/// Returns a row per window, in order.
std::vector<KinetoStepUsage> step_usage(const KinetoTrace& trace);

/// A KinetoStreamUsage sums up one stream of a device.
struct KinetoStreamUsage {
  std::int64_t device = 0;
  std::int64_t stream = 0;
  std::int64_t kernels = 0;
  std::int64_t copies = 0;
  Nanoseconds compute{0};  ///< sums of durations
  Nanoseconds communication{0};
  Nanoseconds copy{0};
};

/// Returns a row per stream, by device, then stream.
std::vector<KinetoStreamUsage> stream_usage(const KinetoTrace& trace);

/// A KinetoGroupUsage sums up one operation in one process group on one rank.
struct KinetoGroupUsage {
  std::string group;  ///< process group name; empty: unknown
  std::string name;
  std::int64_t group_size = 0;  ///< 0: unknown
  std::int64_t count = 0;
  std::int64_t matched = 0;    ///< operations whose end on another rank is known
  std::optional<Bytes> bytes;  ///< sum; empty if any is unknown
  Nanoseconds time{0};         ///< sum of the kernels' times
  Nanoseconds transfer{0};     ///< of the matched operations; transfer + wait = their time
  Nanoseconds wait{0};
  std::optional<Bytes> matched_bytes;
};

/// Returns a row per process group and operation, by group, then name.
std::vector<KinetoGroupUsage> group_usage(const KinetoTrace& trace, const std::vector<KinetoShare>& shares);

/// Returns the time in the trace's steps, or in one step (an index), in which no kernel computes and a
/// collective waits for other ranks.
Nanoseconds exposed_wait(const KinetoTrace& trace, const std::vector<KinetoShare>& shares,
                         std::optional<std::int32_t> step = std::nullopt);

/// Returns the time in the trace's steps in which a collective waits for other ranks, regardless of
/// concurrent compute.
Nanoseconds collective_wait(const KinetoTrace& trace, const std::vector<KinetoShare>& shares);

/// Returns one timeline per step that all ranks have, in the order of step numbers; one group per rank, in
/// the order of ranks, on the aligned clock.
///
/// The compute stream of a rank is the one with the most compute time. Its contiguous kernels of one phase
/// become one span (forward, backward, optimizer_step), whose microbatch is its number within the step. A
/// kernel without a known phase ends a span and belongs to none. Messages whose direction is known become
/// send and receive spans. All other communication becomes all_reduce spans, each of which begins no earlier
/// than the previous one ends. All spans end within the step. In the usage, busy is the time of compute
/// kernels on all streams, wait is the time of communication without such kernels, bubble is the rest of the
/// makespan, and transfer is the time with any communication. Memory is not recorded.
/// @throws Error (input) naming the file if there are no steps with kernels, if a trace has no rank, or if
/// two traces have the same rank.
std::vector<Timeline> to_timelines(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

}  // namespace dflop
