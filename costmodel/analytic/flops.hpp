// These functions count the FLOP of layers and models. A multiply and an add count as two.
//
// Sources: Narayanan et al. 2021 (Megatron-LM, appendix) and Korthikanti et al. 2022 (appendix A) for the
// layers; Chowdhery et al. 2022 (PaLM, appendix B) for which of them count toward MFU; Dao 2023
// (FlashAttention-2, section 4.1) for causal halving.
#pragma once

#include <algorithm>

#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// Returns 2 FLOP per weight and token (Narayanan et al. 2021).
inline Flop linear_flop(double parameters, double tokens) {
  return {2 * parameters * tokens};
}

/// Returns the forward FLOP of the attention core on one of `tp` ranks: QK^T and PV, each 2 * heads *
/// head_dim per attention pair; half of the pairs when causal (Dao 2023).
inline Flop attention_flop(const TransformerSpec& spec, const Workload& work, int tp = 1) {
  const double width = static_cast<double>(spec.heads_per_rank(tp) * spec.head_dim);
  const double pairs = static_cast<double>(work.attention_pairs) * (spec.causal ? 0.5 : 1.0);
  return {4 * width * pairs};
}

/// Returns the FLOP of one layer's forward pass on one of `tp` ranks, padded heads included.
inline Flop layer_forward_flop(const TransformerSpec& spec, const Workload& work, int tp = 1) {
  return linear_flop(static_cast<double>(spec.layer_parameters(tp)), static_cast<double>(work.tokens)) +
         attention_flop(spec, work, tp);
}

/// Returns the encoder rows that come from patches or sound frames: all rows except the class rows that start
/// sequences, if the front has class rows.
inline double seen_rows(const ModelSpec& model, const Workload& encoder) {
  const std::int64_t class_rows = model.front().class_row ? encoder.sequences : 0;
  return static_cast<double>(std::max<std::int64_t>(0, encoder.tokens - class_rows));
}

/// FrontFlop holds the forward FLOP of an encoder's front: `first` for the product with the input data, which
/// needs no input gradient, and `rest` for everything after it.
struct FrontFlop {
  Flop first;
  Flop rest;
};

/// Returns the FLOP of a front. Patches take 2 * values * width a row. A row of sounds covers two frames:
/// each frame takes a convolution over three frames, 2 * 3 * bins * width, and the row takes one over three
/// rows, 2 * 3 * width². Returns zero for models without an architecture.
inline FrontFlop front_flop(const ModelSpec& model, const Workload& encoder) {
  if (!model.architecture) return {};
  const EncoderFront front = model.front();
  const double width = model.encoder.hidden;
  const double rows = seen_rows(model, encoder);
  if (front.kind == FrontKind::patches) return {linear_flop(front.values * width, rows), {}};
  return {linear_flop(3 * front.values * width, 2 * rows), linear_flop(3 * width * width, rows)};
}

/// Returns the number of tokens that the connector makes from an encoder workload: seen_rows() / merge.
inline double connector_tokens(const ModelSpec& model, const Workload& encoder) {
  return seen_rows(model, encoder) / model.connector.merge;
}

/// Returns the forward FLOP of the connector on one of `tp` ranks.
inline Flop connector_flop(const ModelSpec& model, const Workload& encoder, int tp = 1) {
  return linear_flop(static_cast<double>(model.connector.parameters(tp)), connector_tokens(model, encoder));
}

/// Returns the forward FLOP of the vocabulary head on one of `tp` ranks: 2 * hidden * vocabulary per token.
/// The embedding is a lookup and takes no FLOP.
inline Flop head_flop(const TransformerSpec& spec, const Workload& work, int tp = 1) {
  return linear_flop(static_cast<double>(spec.hidden * spec.vocabulary_per_rank(tp)),
                     static_cast<double>(work.tokens));
}

/// Returns the forward FLOP of the fronts, all encoder layers and the connectors of the unpadded model. The
/// workload's pairs already account for attention windows; they are the mean over the layers.
inline Flop encoder_flop(const ModelSpec& model, const Workload& encoder) {
  if (model.second && encoder.second.tokens > 0) {
    Workload first = encoder;
    first.second = {};
    return encoder_flop(model, first) + encoder_flop(model.of_second(), encoder.of_second());
  }
  const FrontFlop front = front_flop(model, encoder);
  return front.first + front.rest + layer_forward_flop(model.encoder, encoder) * model.encoder.layers +
         connector_flop(model, encoder);
}

/// Returns the forward FLOP of all LLM layers and the vocabulary head of the unpadded model.
inline Flop llm_flop(const ModelSpec& model, const Workload& llm) {
  return layer_forward_flop(model.llm, llm) * model.llm.layers + head_flop(model.llm, llm);
}

/// Returns the forward FLOP of LoRA's pairs in all LLM layers: 2 per parameter and token.
inline Flop adapter_flop(const ModelSpec& model, const TrainedParts& trained, const Workload& llm) {
  const auto parameters = static_cast<double>(model.llm.adapter_parameters(trained.lora_rank, 1));
  return linear_flop(parameters, static_cast<double>(llm.tokens)) * model.llm.layers;
}

/// Returns the forward and backward FLOP of the unpadded model without recomputation: the numerator of MFU
/// (PaLM, appendix B). Each forward product has two backward products, for its input gradient and its weight
/// gradient; the front's first product has only the weight gradient.
///
/// Frozen parts have no weight gradients, and parts before all trained parameters have no gradients.
/// Attention has no weights; it has two backward products or none. If nothing before the connector is
/// trained, its first product needs no input gradient, unless the connector has a trained norm before it.
inline Flop model_flop(const ModelSpec& model, const Workload& encoder, const Workload& llm,
                       const TrainedParts& trained = {}) {
  if (model.second && encoder.second.tokens > 0) {
    Workload first = encoder;
    first.second = {};
    return model_flop(model, first, llm, trained) +
           model_flop(model.of_second(), encoder.of_second(), {}, trained);
  }
  const Flop front = front_flop(model, encoder).first;
  if (trained.all()) return {((encoder_flop(model, encoder) + llm_flop(model, llm)) * 3).count - front.count};
  const auto passes = [](bool input, bool weights) { return 1.0 + (input ? 1 : 0) + (weights ? 1 : 0); };
  const Flop ends = connector_flop(model, encoder);
  const Flop own = {encoder_flop(model, encoder).count - ends.count};
  double count = trained.encoder ? 3 * own.count - front.count : own.count;
  count += passes(trained.reaches_connector(), trained.connector) * ends.count;
  if (!trained.encoder && trained.connector && !model.has_connector_norm() && ends.count > 0) {
    const double first = 1.0 * model.connector.widths[0] * model.connector.widths[1];
    count -= linear_flop(first, connector_tokens(model, encoder)).count;
  }
  const Flop core = attention_flop(model.llm, llm) * model.llm.layers;
  count += 3 * core.count + passes(true, trained.llm) * (llm_flop(model, llm).count - core.count);
  return {count + 3 * adapter_flop(model, trained, llm).count};
}

/// StageFlop holds a stage's forward FLOP on a microbatch, unpadded, grouped by the backward products they
/// need.
struct StageFlop {
  Flop attention;  ///< the layers' attention core, which has no weights
  Flop layers;     ///< the layers' weights
  Flop first;      ///< the front's first product, which needs no input gradient
  Flop ends;       ///< the rest of the front, and the connector
  Flop head;

  Flop all() const { return attention + layers + first + ends + head; }
  StageFlop& operator+=(const StageFlop& other) {
    attention += other.attention;
    layers += other.layers;
    first += other.first;
    ends += other.ends;
    head += other.head;
    return *this;
  }
};

/// Returns the FLOP of a stage, summed over its tp ranks.
inline StageFlop stage_flop(const ModelSpec& model, const Stage& stage, const Work& work) {
  StageFlop flop;
  const auto add = [&](const TransformerSpec& spec, int layers, const Workload& of) {
    const Flop core = attention_flop(spec, of);
    flop.attention += core * layers;
    flop.layers += Flop{layer_forward_flop(spec, of).count - core.count} * layers;
  };
  add(model.encoder, stage.encoder_layers, work.encoder);
  add(model.llm, stage.llm_layers, work.llm);
  if (stage.connector) flop.ends += connector_flop(model, work.encoder);
  if (stage.head) flop.head = head_flop(model.llm, work.llm);
  if (stage.front) {
    const FrontFlop front = front_flop(model, work.encoder);
    flop.first = front.first;
    flop.ends += front.rest;
  }
  if (work.has_second(stage, model))
    flop += stage_flop(model.of_second(), stage_of_second(stage, model), work.of_second());
  return flop;
}

}  // namespace dflop
