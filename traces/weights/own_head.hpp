// An LLM's head may be its embedding: what a folder's config.json says of that, its weights can belie.
#pragma once

#include <optional>
#include <string>

namespace dflop {

/// Tells whether the weights of a folder have a head, "lm_head.weight", that is not a copy of its embedding:
/// of both, at least 64 rows are compared, or all where there are fewer. Returns nothing where the folder has
/// no weights, or none that can be read.
std::optional<bool> has_own_head(const std::string& folder);

}  // namespace dflop
