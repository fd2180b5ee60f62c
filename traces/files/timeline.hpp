// Timelines of several iterations on disk: schema "dflop.timeline", version 2.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/timeline.hpp"

namespace dflop {

inline constexpr std::string_view kTimelineSchema = "dflop.timeline";
inline constexpr int kTimelineVersion = 2;

struct TimelineFile {
  std::vector<Timeline> iterations;
};

/// Writes groups, spans, memory points, shapes of stages, works and stalls as columns, one array per field,
/// times in whole nanoseconds; and the number of cores, where ranks took turns on some.
/// Streams and operations are indices into the file's own lists of names.
std::string to_json(const TimelineFile& file);

/// A file of one iteration.
std::string to_json(const Timeline& timeline);

/// @throws Error (input) naming the key, also where columns differ in length, or a span or memory point names
/// a rank that begins no group or a stage that is not there.
TimelineFile parse_timelines(std::string_view json, const std::string& file);

/// Reads a file of exactly one iteration.
Timeline parse_timeline(std::string_view json, const std::string& file);

}  // namespace dflop
