// live_timeline() turns the spans that the ranks of a live run have recorded into a Timeline.
#pragma once

#include <string>
#include <vector>

#include "backend/run/live_rank.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// A GroupRecord holds the records of a group's ranks: the times of its last rank, and the memory of its
/// first rank.
struct GroupRecord {
  std::vector<LiveSpan> spans;  ///< one for each of the group's instructions, in order
  ModelState model_state;
};

/// Returns the timeline of `records`, one for each group of the program. All times are on one clock, which
/// is 0 at the start of the first instruction. Spans mean the same as in a simulation. A send lasts until
/// its message has arrived or, if the receiver was waiting, until the receiver continues. A collective lasts
/// from the arrival of its last participant to its end; if it was started and finished by separate
/// instructions, the span belongs to the start. A rank that awaits a message is in a bubble until the
/// message is sent. A rank that awaits a collective is in a bubble until all participants have joined. The
/// rest of its idle time is wait. All other time that is neither busy nor wait is bubble, including time for
/// waiting for a core, for copying data of sends, and between instructions.
///
/// The size of an instruction's buffers is the amount by which its peak memory exceeds the memory both
/// before and after it.
Timeline live_timeline(const Program& program, const std::vector<GroupRecord>& records,
                       const std::string& source);

}  // namespace dflop
