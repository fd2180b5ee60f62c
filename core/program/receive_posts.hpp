// A rank may enter receives into its device before it needs what they bring, and where sends hold up the
// sender's device it has to. This header says which receives of a Program are entered where, and whether
// ranks get to their end although each waits for its whole device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// ReceivePosts say before which instruction a group posts a receive: enters it without waiting for it. A
/// receive that is not posted before its own instruction is entered there.
struct ReceivePosts {
  /// Those before instruction i of the program are messages[begin[i]] to messages[begin[i + 1]] - 1, in the
  /// order in which they are posted. Empty: none is.
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> messages;

  std::span<const std::int32_t> before(std::int64_t instruction) const {
    if (begin.empty()) return {};
    const auto i = static_cast<std::size_t>(instruction);
    return {messages.data() + begin[i], messages.data() + begin[i + 1]};
  }
};

/// A group posts so many receives from one other group ahead of their instructions, if that is enough.
inline constexpr int kPostedAhead = 2;

/// Returns the posts with which no group waits for ever (require_progress()), if there are any. All
/// instructions are put into one sequence that keeps the order of each group and has every send before its
/// receive, and each receive is posted where its group stands at the send. So whoever goes by the sequence
/// finds nothing open: what was sent before is posted, and what was posted is sent. In it groups run ahead as
/// far as they can with `ahead` messages, at least 1, under way to each other group; only where no group
/// could go on there are more. What one group sends to another is posted in the order in which it is sent.
/// Takes time in proportion to the instructions, times the passes over the groups that the sequence takes.
ReceivePosts post_receives(const Program& program, int ahead = kPostedAhead);

/// Checks that all groups of a verified Program come to their end although every compute instruction and
/// optimizer step begins only when all is done that its group has entered before: sends are done when their
/// receive is entered, and receives when their send is. GPUs may wait so, when they load code or look for
/// memory. Instructions follow each other in every group; all_reduce_start enters nothing, and groups meet in
/// the instruction that ends a collective.
/// @throws Error (input) naming the first group that does not, its instruction and what that waits for.
void require_progress(const Program& program, const ReceivePosts& posts);

/// Returns whether all groups come to their end even where each sum that an all_reduce_start is about is
/// entered during the compute that follows, and holds up its group's device until all others have entered it:
/// that compute, which may wait for the device again, ends then, and only then the next sum is entered and
/// something sent. If so require_progress() has nothing against the program either, as a sum that is entered
/// where it is waited for holds up less.
bool progresses_with_early_sums(const Program& program, const ReceivePosts& posts);

}  // namespace dflop
