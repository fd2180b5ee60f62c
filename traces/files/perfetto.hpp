// Timelines as Chrome trace events, for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/timeline.hpp"

namespace dflop {

/// More events than this make the viewer slow; beyond it only the first rank of each tp group is drawn, the
/// others doing the same at the same time.
inline constexpr std::int64_t kMostTraceEvents = 2'000'000;

/// A piece of the critical path of an iteration. Pieces of one iteration do not overlap.
struct PathSlice {
  std::int64_t iteration = 0;  ///< index
  std::string name;
  Nanoseconds start{0};  ///< from the begin of the iteration
  Nanoseconds duration{0};
};

/// The iterations one after the other. A process per stage; in it a track per rank and stream (and further
/// lanes, "send 2", for messages in flight at the same time) and a counter of each rank's memory. Arrows lead
/// from each send to its receive. The critical path, where given, is a process with a track of its own. Times
/// are microseconds with three decimals, which is to the nanosecond.
std::string to_perfetto(std::span<const Timeline> iterations, std::int64_t most_events = kMostTraceEvents,
                        std::span<const PathSlice> critical_path = {});

}  // namespace dflop
