// This file stores timelines in files of schema "dflop.timeline", which can be read again, and exports them
// as Chrome trace events for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/timeline.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A RecordFinding is a problem in the record behind a timeline that may make what-ifs wrong.
struct RecordFinding {
  std::string kind;  ///< such as "missing_rank"
  std::string text;

  bool operator==(const RecordFinding&) const = default;
};

/// A TimelineFile holds the iterations of one file, in order.
struct TimelineFile {
  std::vector<Timeline> iterations;
  std::optional<Provenance> made_by = {};
  std::vector<RecordFinding> findings = {};
};

/// Tells whether a recording has several steps and begins with the warm-up step of a live run.
bool begins_with_warm_up(const TimelineFile& file);

/// Returns a file of schema "dflop.timeline", version 2. Groups, spans, memory points, shapes of stages,
/// works and stalls are stored as columns, one array per field, with times in whole nanoseconds. If ranks
/// took turns on cores, the file also has the number of cores. Findings, if any, are stored outside the
/// iterations. Streams and operations are indices into the file's own lists of names.
std::string to_json(const TimelineFile& file);

/// Returns a file with one iteration.
std::string to_json(const Timeline& timeline);

/// Reads a file with one or more iterations.
/// @throws Error (input) naming the key; also if columns differ in length, or if a span or memory point names
/// a stage that does not exist or a rank that is not the first of a group.
TimelineFile parse_timelines(std::string_view json, const std::string& file);

/// Reads a file with exactly one iteration. @throws what parse_timelines() throws
Timeline parse_timeline(std::string_view json, const std::string& file);

/// More events than this make the viewer slow. Beyond this limit, to_perfetto() draws only the first rank of
/// each tp group; the other ranks do the same at the same time.
inline constexpr std::int64_t kMaxTraceEvents = 2'000'000;

/// A PathSlice is a piece of the critical path of an iteration. Pieces of one iteration do not overlap.
struct PathSlice {
  std::int64_t iteration = 0;  ///< index of the iteration
  std::string name;
  Nanoseconds start{0};  ///< from the begin of the iteration
  Nanoseconds duration{0};
};

/// Returns trace events of the iterations, one after the other. Each stage is a process; each rank and stream
/// is a track in it (with further lanes, "send 2", for simultaneous messages), and each rank's memory is a
/// counter. Arrows lead from each send to its receive. The critical path, if given, is a process with its own
/// track. Times are microseconds with three decimals, exact to the nanosecond.
std::string to_perfetto(std::span<const Timeline> iterations, std::int64_t most_events = kMaxTraceEvents,
                        std::span<const PathSlice> critical_path = {});

}  // namespace dflop
