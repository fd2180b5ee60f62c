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

/// The iterations one after the other. A process per stage; in it a track per rank and stream (and further
/// lanes, "send 2", for messages in flight at the same time) and a counter of each rank's memory. Arrows lead
/// from each send to its receive. Times are microseconds with three decimals, which is to the nanosecond.
std::string to_perfetto(std::span<const Timeline> iterations, std::int64_t most_events = kMostTraceEvents);

}  // namespace dflop
