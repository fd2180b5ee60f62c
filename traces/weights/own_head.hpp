// This file checks whether an LLM's head is tied to its embedding, because a folder's config.json may
// contradict its weights.
#pragma once

#include <optional>
#include <string>

namespace dflop {

/// Tells whether a folder's weights have a head, "lm_head.weight", that is not a copy of the embedding.
/// Compares at least 64 rows of both, or all if there are fewer. Returns nullopt if the folder has no weights
/// or if they cannot be read.
std::optional<bool> has_own_head(const std::string& folder);

}  // namespace dflop
