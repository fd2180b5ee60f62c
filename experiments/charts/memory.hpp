// Memory of one rank over time is drawn as a picture.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/timeline.hpp"

namespace dflop {

/// Draws parameters, gradients, optimizer, activations and buffers of a group's ranks on top of each other,
/// with the time scale of timeline_svg(timeline, timeline.makespan); the peak is marked, and `limit` is a
/// line. `timeline` has its memory points. Times nearer than half a pixel are drawn as the fullest of them.
std::string memory_svg(const Timeline& timeline, std::size_t group, std::optional<Bytes> limit);

}  // namespace dflop
