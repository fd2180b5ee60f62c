// A rank may post receives on its device before it needs their data. It has to if unreceived sends block the
// sender's device. These functions choose when to post each receive of a Program, and check that all ranks
// finish even if each waits for its whole device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// ReceivePosts say before which instruction a group posts a receive, that is, enters it without waiting. All
/// other receives are entered at their own instruction.
struct ReceivePosts {
  /// The receives posted before instruction i of the program are messages[begin[i]] to messages[begin[i + 1]]
  /// - 1, in this order. Empty: no receive is posted early.
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> messages;

  std::span<const std::int32_t> before(std::int64_t instruction) const {
    if (begin.empty()) return {};
    const auto i = static_cast<std::size_t>(instruction);
    return {messages.data() + begin[i], messages.data() + begin[i + 1]};
  }
};

/// A group posts this many receives from one other group ahead of their instructions, if that is enough.
inline constexpr int kPostedAhead = 2;

/// Returns posts with which no group waits forever (require_progress()), if there are any. It puts all
/// instructions into one sequence that keeps each group's order and has every send before its receive; each
/// receive is posted at the position that its group has reached when the message is sent. An execution that
/// follows this sequence never blocks: when a group waits for a message, the message was sent before; when a
/// group sends one, its receive is posted. In the sequence, groups run ahead as far as they can with up to
/// `ahead` messages, at least 1, in flight to each other group. More are in flight only if no group could
/// continue otherwise. Receives from one group are posted in the order of its sends. The time is proportional
/// to the number of instructions times the number of passes over the groups that it takes to make the
/// sequence.
ReceivePosts post_receives(const Program& program, int ahead = kPostedAhead);

/// Checks that all groups of a verified Program finish even if every compute instruction and optimizer step
/// begins only when everything that its group has already entered is done. A send is done when its receive is
/// entered, and a receive when its send is. GPUs may wait like this when they load code or allocate memory.
/// Instructions of a group run one after another; all_reduce_start enters nothing, and groups meet in the
/// instruction that ends a collective.
/// @throws Error (input) naming the first group that does not finish, its instruction and what it waits for.
void require_progress(const Program& program, const ReceivePosts& posts);

/// Returns whether all groups finish even if the sums of all_reduce_start are entered during the following
/// compute and block their group's device until all others have entered them. That compute may also have to
/// wait for the device. Only when it has ended, the group enters the next sum or sends a message. If so,
/// require_progress() also accepts the program, because a sum that is entered only when it is waited for
/// blocks less.
bool progresses_with_early_sums(const Program& program, const ReceivePosts& posts);

}  // namespace dflop
