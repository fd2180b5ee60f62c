#include "core/measured/profile.hpp"

namespace dflop {

TpMode tp_mode(int tp, bool sequence_parallel) {
  return {tp, sequence_parallel && tp > 1};
}

TpMode tp_mode(const Stage& stage) {
  return tp_mode(stage.tp, stage.sequence_parallel);
}

std::string to_string(const TpMode& mode) {
  return "tp " + std::to_string(mode.tp) + (mode.sequence_parallel ? " with sequence parallelism" : "");
}

ModelSpec profiled_model(const ModelSpec& model) {
  ModelSpec profiled = model;
  profiled.preprocess.clear();
  profiled.max_tokens = 0;
  for (TransformerSpec* spec : {&profiled.encoder, &profiled.llm}) {
    const TransformerSpec unset;
    spec->attention = unset.attention;
    spec->dropout = unset.dropout;
    spec->fused_cross_entropy = unset.fused_cross_entropy;
    spec->tied_embeddings = unset.tied_embeddings;
  }
  return profiled;
}

}  // namespace dflop
