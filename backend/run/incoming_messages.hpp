// IncomingMessages say in which order a rank takes the messages of an iteration.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "core/program.hpp"

namespace dflop {

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
