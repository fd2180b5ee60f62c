// Devices may pad rows within MLPs in memory. with_padded_rows() returns the slightly wider model that they
// then compute and hold.
#pragma once

#include <cstddef>

#include "core/model.hpp"

namespace dflop {

/// Returns the model with padded widths, for a device with this alignment and tp ranks: the widths between
/// the two linear layers of an MLP, or of the connector, are rounded up to a multiple of `row_alignment` on
/// each rank.
inline ModelSpec with_padded_rows(ModelSpec model, int tp, int row_alignment) {
  if (row_alignment == 1) return model;
  const auto pad = [&](int& width) {
    width = static_cast<int>(tp * round_up(round_up(width, tp) / tp, row_alignment));
  };
  pad(model.encoder.ffn);
  pad(model.llm.ffn);
  const auto pad_connector = [&](ConnectorSpec& connector) {
    for (std::size_t i = 1; i + 1 < connector.widths.size(); i += 2) pad(connector.widths[i]);
  };
  pad_connector(model.connector);
  if (model.second) {
    pad(model.second->encoder.ffn);
    pad_connector(model.second->connector);
  }
  return model;
}

}  // namespace dflop
