// This header says which ranks send a Program's messages, which receive them, and in which order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "backend/communicator.hpp"
#include "core/program.hpp"

namespace dflop {

/// Returns the places of a tp group of `receivers` to which rank `place` of one of `senders` sends: each of
/// them hears a message once, and all senders have it.
std::vector<int> receivers_of(int place, int senders, int receivers);

/// Returns the routes of all ranks of a Program, each once, by source and then destination.
std::vector<RankRoute> routes_of(const Program& program);

/// IncomingMessages are the messages to one group. A program orders those from a stage to a stage. Two groups
/// may hold several stages each, though, and what goes between two ranks arrives as it was sent; so a rank
/// may have to take messages that it needs later before the one that it needs now.
class IncomingMessages {
 public:
  struct Incoming {
    Instruction instruction;   ///< that receives it
    bool activations = false;  ///< of the stage's input; else the gradient of its output
  };

  /// Makes the messages of no program.
  IncomingMessages() = default;
  IncomingMessages(const Program& program, std::size_t group);

  const Incoming& at(std::int32_t message) const { return incoming_.at(message); }

  /// Returns the messages to take now so that `message` is there, in their order and with it as the last;
  /// none where an earlier call had it in its answer.
  std::vector<std::int32_t> take_until(std::int32_t message);

 private:
  std::map<std::int32_t, Incoming> incoming_;
  std::map<std::int32_t, std::int32_t> source_of_;            // by message, as long as it is to be taken
  std::map<std::int32_t, std::deque<std::int32_t>> sent_by_;  // by group, in its order
};

}  // namespace dflop
