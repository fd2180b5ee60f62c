// message_rows() says which rows of packed activations or gradients each message of a Program carries, and
// where they go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// MessageRows are the rows [source, source + count) of the sender's output for the microbatch, or of the
/// gradient of its input. The receiver stores them from row `destination` on in a matrix of `of` rows.
struct MessageRows {
  bool activations = false;  ///< otherwise gradients
  std::int32_t source_stage = 0;
  std::int32_t destination_stage = 0;
  std::int64_t source = 0;
  std::int64_t destination = 0;
  std::int64_t count = 0;
  std::int64_t of = 0;

  bool operator==(const MessageRows&) const = default;
};

/// Returns the rows of each message of a Program that lower() made from these arguments. A microbatch is
/// packed: its samples follow each other in batch order, without padding. Messages from the encoder to the
/// LLM have a row for each encoder output token, messages between LLM stages one for each LLM token, and
/// messages between encoder stages one for each encoder token.
/// @throws Error (input) for a plan with Reshard::hub, whose messages are forwarded
std::vector<MessageRows> message_rows(const Plan& plan, const ModelSpec& model,
                                      std::span<const Sample> samples, const Assignment& assignment,
                                      const Program& program);

}  // namespace dflop
