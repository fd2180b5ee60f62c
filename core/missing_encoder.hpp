// Finds samples that need an encoder which the model lacks.
#pragma once

#include <string>

#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// Returns why a model cannot encode a sample's sounds; empty if it can.
inline std::string missing_encoder(const ModelSpec& model, const Sample& sample) {
  if (model.second || sample.encoder().second.tokens == 0) return "";
  return "sample '" + sample.id + "' has sequences of a second encoder, which model '" + model.name +
         "' lacks";
}

}  // namespace dflop
