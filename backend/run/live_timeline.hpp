// What the ranks of a live run have noted becomes a Timeline here.
#pragma once

#include <string>
#include <vector>

#include "backend/run/live_rank.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// A GroupRecord has what a group's ranks have noted: times of the last of them, memory of the first.
struct GroupRecord {
  std::vector<LiveSpan> spans;  ///< of each of its instructions, in order
  ModelState model_state;
};

/// Returns the timeline of `records`, one for each group of the program, on one clock, which becomes zero
/// where the first instruction begins. Spans mean the same as a simulation's: a send lasts until its message
/// is there, or, where that was waited for, until its receiver goes on; a collective from its last
/// participant's coming to its end, and one that was started and waited for has that span at its start. A
/// rank that awaits a message idles in a bubble until it is sent, and one that awaits a collective until all
/// have come; what it idles after that is wait. All time that is neither busy nor wait is bubble, that of
/// waiting for a core, of copying into sends and between instructions, too.
///
/// An instruction's buffers are what its most memory is above that before and after it.
Timeline live_timeline(const Program& program, const std::vector<GroupRecord>& records,
                       const std::string& source);

}  // namespace dflop
