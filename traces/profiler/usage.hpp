// How a rank of a PyTorch-profiler trace spent its steps, and its communication by process group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

/// The part of a trace's device time that belongs to a step: from the first activity that the step launched
/// to the first of the next step, or to the end of its own last one. Without steps, one window over all.
struct KinetoWindow {
  std::int32_t step = -1;  ///< index into KinetoTrace::steps; -1 without steps
  Nanoseconds begin{0};
  Nanoseconds end{0};
};

/// One window per step that launched something, in order; they do not overlap.
std::vector<KinetoWindow> device_windows(const KinetoTrace& trace);

/// Times in which at least one activity of the kind runs. busy + idle = end - begin.
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

std::vector<KinetoStepUsage> step_usage(const KinetoTrace& trace);

struct KinetoStreamUsage {
  std::int64_t device = 0;
  std::int64_t stream = 0;
  std::int64_t kernels = 0;
  std::int64_t copies = 0;
  Nanoseconds compute{0};  ///< sums of durations
  Nanoseconds communication{0};
  Nanoseconds copy{0};
};

/// By device, then stream.
std::vector<KinetoStreamUsage> stream_usage(const KinetoTrace& trace);

/// All of one operation in one process group on one rank.
struct KinetoGroupUsage {
  std::string group;  ///< process group name; empty: not known
  std::string name;
  std::int64_t group_size = 0;  ///< 0: not known
  std::int64_t count = 0;
  std::int64_t matched = 0;    ///< those of which another rank's end is known
  std::optional<Bytes> bytes;  ///< sum; nothing where one is not known
  Nanoseconds time{0};         ///< sum of the kernels' times
  Nanoseconds transfer{0};     ///< sums over those matched; transfer + wait = their time
  Nanoseconds wait{0};
  std::optional<Bytes> matched_bytes;
};

/// By group, then name.
std::vector<KinetoGroupUsage> group_usage(const KinetoTrace& trace, const std::vector<KinetoShare>& shares);

}  // namespace dflop
