// These functions read the parts of a model that model files and profiles have in common.
#pragma once

#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// TransformerLimits are the allowed sizes of a module.
struct TransformerLimits {
  int layers;
  int width;
  int heads;
  int least_vocabulary;  ///< 0 for an encoder, which has neither embedding nor vocabulary head
  int vocabulary;
};

/// Reads a module. `optional` keys are permitted.
/// @throws Error (input) naming the key for sizes beyond the limits
TransformerSpec read_transformer(const JsonValue& json, const TransformerLimits& limits,
                                 const std::vector<std::string_view>& optional = {});
/// Reads a connector. @throws Error (input) naming the key for sizes beyond the limits
ConnectorSpec read_connector(const JsonValue& json, int most_width, int most_merge);

}  // namespace dflop
