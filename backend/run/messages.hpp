// IncomingMessages gives the order in which a group's ranks must receive a Program's messages.
// receivers_of() and routes_of() say which ranks exchange messages.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "backend/communicator.hpp"
#include "core/program.hpp"

namespace dflop {

/// A tp group of `senders` ranks sends a message, which each of them holds, to a tp group of `receivers`
/// ranks. Returns the indices of the receiving ranks to which the sender with index `place` sends. Each
/// receiver gets the message once.
std::vector<int> receivers_of(int place, int senders, int receivers);

/// Returns the routes between all ranks of a Program, without duplicates, sorted by source and then
/// destination.
std::vector<RankRoute> routes_of(const Program& program);

/// IncomingMessages are the messages to one group. Messages between two ranks arrive in the order in which
/// they are sent. A program uses the messages between two stages in that order, but a group may hold several
/// stages. So a rank may have to receive messages that it needs later before the message that it needs now.
class IncomingMessages {
 public:
  struct Incoming {
    Instruction instruction;   ///< the instruction that receives the message
    bool activations = false;  ///< true: the stage's input; false: the gradient of its output
  };

  /// Makes an empty list.
  IncomingMessages() = default;
  IncomingMessages(const Program& program, std::size_t group);

  const Incoming& at(std::int32_t message) const { return incoming_.at(message); }

  /// Returns the messages that the group must receive now to get `message`, in order; the last one is
  /// `message`. Empty if an earlier call has returned `message`.
  std::vector<std::int32_t> take_until(std::int32_t message);

 private:
  std::map<std::int32_t, Incoming> incoming_;
  std::map<std::int32_t, std::int32_t> source_of_;  // source group by message, until the message is taken
  std::map<std::int32_t, std::deque<std::int32_t>> sent_by_;  // messages by source group, in sending order
};

}  // namespace dflop
