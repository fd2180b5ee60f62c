// These functions compare the tokens of media in config.json with the tokenizer.
#pragma once

#include <string>
#include <string_view>

#include "core/model.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {

/// Returns the name of the model's family in media_families(); nothing for a text model.
std::string_view media_family(const ModelSpec& model);

/// Checks that the tokenizer has no more tokens than the model's vocabulary, and that the tokens of pictures
/// and sounds, and the tokens around media, have the ids in the folder's config.json. A video's token counts
/// only if a sample has a video.
/// @throws Error (input) naming the file, the key, and the expected and the found id
void require_special_tokens(const ModelSpec& model, const Tokenizer& tokenizer, const std::string& folder);

}  // namespace dflop
