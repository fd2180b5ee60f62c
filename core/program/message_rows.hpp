// A Program's messages carry rows of packed activations: which of the sender's, and where they go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// MessageRows are the rows [source, source + count) of what the sender has made of the microbatch, its
/// output or the gradient of its input, and stand from `destination` on at the receiver, whose matrix has
/// `of` rows.
struct MessageRows {
  bool activations = false;  ///< else gradients
  std::int32_t source_stage = 0;
  std::int32_t destination_stage = 0;
  std::int64_t source = 0;
  std::int64_t destination = 0;
  std::int64_t count = 0;
  std::int64_t of = 0;

  bool operator==(const MessageRows&) const = default;
};

/// Returns the rows of each message of a Program that lower() made of these. A microbatch is packed: its
/// samples follow each other in batch order, without padding. What goes from the encoder to the LLM has a row
/// for each encoder output token, what goes between stages of the LLM one for each LLM token, and what goes
/// between stages of the encoder one for each encoder token.
/// @throws Error (input) for a plan with Reshard::hub, whose messages are passed on
std::vector<MessageRows> message_rows(const Plan& plan, const ModelSpec& model,
                                      std::span<const Sample> samples, const Assignment& assignment,
                                      const Program& program);

}  // namespace dflop
