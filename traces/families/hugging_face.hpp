// This file reads a ModelSpec from the config.json of a Hugging Face model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model.hpp"

namespace dflop {

/// Hugging Face models compute at most this many logits at once: 512 MiB in bf16, 1 GiB in f32; with a
/// vocabulary of 152,064 that is 1,765 rows.
inline constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 28;

/// A ConfigReport lists keys of a config.json for people, such as "text_config.hidden_size".
struct ConfigReport {
  std::vector<std::string> unknown;  ///< keys that are not read and not known to have no effect on training
  std::vector<std::pair<std::string, std::string>>
      defaults;                ///< missing keys of numbers and the values that they got
  std::int64_t positions = 0;  ///< the longest sequence by the config; ModelSpec::max_tokens may be lower
};

/// Reads the config.json of a model of one of the families in ModelFamily, as written by transformers 4 and
/// 5: sizes, forms of layers, positions, connector. Missing keys get the defaults of transformers' classes.
/// The model's name is `file`. An absent part, such as the encoder of a text LLM, has no layers. The LLM's
/// head is tied to its embedding if the config of the text model or of the enclosing model says so, because
/// released configs contradict themselves (LLaVA-OneVision 0.5B). As in transformers 5, weights that show
/// otherwise take precedence.
/// @param own_head  has_own_head() of the folder's weights, if known
/// @param report    receives the keys that are not read, if not null
/// @throws Error (input) naming the key for a different architecture or an unsupported setting, with the
/// found and the expected value, and for a key that looks like a missing one misspelled.
ModelSpec parse_hugging_face(std::string_view json, const std::string& file,
                             std::optional<bool> own_head = {}, ConfigReport* report = nullptr);

/// Tells whether a config.json is in the form that OpenGVLab publishes for InternVL, which needs the Python
/// code in its folder in addition to transformers. @throws Error (input) if it is not a JSON object
bool is_of_opengvlab(std::string_view json, const std::string& file);

}  // namespace dflop
