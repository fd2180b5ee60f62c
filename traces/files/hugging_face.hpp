// A model of transformers says in its config.json what it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/model.hpp"

namespace dflop {

/// Models of transformers make so many logits at once: 512 MiB in bf16, 1 GiB in f32, of 152,064 words those
/// of 1,765 rows.
inline constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 28;

/// Reads the config.json of a Qwen2, Llama, LLaVA-OneVision, Qwen2.5-VL, InternVL (transformers' own form) or
/// Qwen2-Audio model, in the forms of transformers 4 and 5: sizes, forms of layers, positions, connector.
/// Where a key is absent, its class's default stands. The name of the model is `file`. What a model has no
/// part for, a text LLM for an encoder, has no layers.
/// The LLM's head is its embedding where the text model or the model around it says so, as released configs
/// contradict themselves (LLaVA-OneVision 0.5B), and the weights do not belie it: as in transformers 5.
/// @param own_head  what the folder's weights say, as has_own_head(), if that is known
/// @throws Error (input) naming the key for another architecture, or one that asks for what is not computed,
/// with what was found and expected.
ModelSpec parse_hugging_face(std::string_view json, const std::string& file,
                             std::optional<bool> own_head = {});

/// Tells whether a config.json is that of InternVL as OpenGVLab publishes it, which is read by the code
/// beside it and not by transformers alone. @throws Error (input) for what is no JSON object
bool is_of_opengvlab(std::string_view json, const std::string& file);

}  // namespace dflop
