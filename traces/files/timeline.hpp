// Timelines are kept in files of schema "dflop.timeline", which are read again, and Chrome trace events for
// ui.perfetto.dev and chrome://tracing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/timeline.hpp"
#include "traces/files/kernels.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A RecordFinding is what was found in the record that a timeline is of, and by which what-ifs may be wrong.
struct RecordFinding {
  std::string kind;  ///< as "missing_rank"
  std::string text;

  bool operator==(const RecordFinding&) const = default;
};

/// A TimelineFile has the iterations of one file, in their order.
struct TimelineFile {
  std::vector<Timeline> iterations;
  std::optional<Provenance> made_by = {};
  std::optional<RecordedKernels> kernels = {};  ///< of iterations whose kernels were chosen
  std::vector<RecordFinding> findings = {};
};

/// Tells whether a recording of several steps begins with the first step of a live run, which warms up.
bool begins_with_warm_up(const TimelineFile& file);

/// Returns a file of schema "dflop.timeline", version 2: groups, spans, memory points, shapes of stages,
/// works and stalls as columns, one array per field, times in whole nanoseconds; and the number of cores,
/// where ranks took turns on some; and, apart from the iterations, chosen kernels and findings where there
/// are any. Streams and operations are indices into the file's own lists of names.
std::string to_json(const TimelineFile& file);

/// Returns a file of one iteration.
std::string to_json(const Timeline& timeline);

/// Reads a file of one iteration or more.
/// @throws Error (input) naming the key, also where columns differ in length, or a span or memory point names
/// a rank that begins no group or a stage that is not there.
TimelineFile parse_timelines(std::string_view json, const std::string& file);

/// Reads a file of exactly one iteration. @throws as parse_timelines().
Timeline parse_timeline(std::string_view json, const std::string& file);

/// More events than this make the viewer slow; beyond it only the first rank of each tp group is drawn, the
/// others doing the same at the same time.
inline constexpr std::int64_t kMostTraceEvents = 2'000'000;

/// A PathSlice is a piece of the critical path of an iteration. Pieces of one iteration do not overlap.
struct PathSlice {
  std::int64_t iteration = 0;  ///< index
  std::string name;
  Nanoseconds start{0};  ///< from the begin of the iteration
  Nanoseconds duration{0};
};

/// Returns trace events of the iterations, one after the other. A process per stage; in it a track per rank
/// and stream (and further lanes, "send 2", for messages in flight at the same time) and a counter of each
/// rank's memory. Arrows lead from each send to its receive. The critical path, where given, is a process
/// with a track of its own. Times are microseconds with three decimals, which is to the nanosecond.
std::string to_perfetto(std::span<const Timeline> iterations, std::int64_t most_events = kMostTraceEvents,
                        std::span<const PathSlice> critical_path = {});

}  // namespace dflop
