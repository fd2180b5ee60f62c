#include <tuple>

#include "traces/families/config.hpp"

namespace dflop {

ConnectorForm sound_connector() {
  return {.selects = true, .averages = true, .norm = NormKind::layer, .epsilon = 1e-5};
}

std::pair<TransformerSpec, EncoderFront> read_sound_encoder(const Config& audio) {
  audio.require("activation_function", "gelu");
  audio.require_flag("scale_embedding", false);
  TransformerSpec encoder = read_encoder(audio, "whisper", "encoder_layers", "d_model", "encoder_ffn_dim",
                                         "encoder_attention_heads");
  LayerForm form;
  form.key_bias = false;
  form.activation = Activation::gelu_erf;
  form.rotary.reset();
  encoder.form = form;
  const EncoderFront front{.kind = FrontKind::sound,
                           .values = audio.size("num_mel_bins", 128, 512),
                           .bias = true,
                           .table = audio.size("max_source_positions", 1500, kMaxConfigWidth),
                           .frozen_table = true};
  return {encoder, front};
}

ModelSpec read_qwen2_audio(const Config& root) {
  ModelSpec model;
  model.preprocess = "qwen2-audio";
  model.llm = read_inner_text(root, "qwen2");
  Architecture& of = model.architecture.emplace();
  std::tie(model.encoder, of.front) = read_sound_encoder(root.object("audio_config"));
  of.family = ModelFamily::qwen2_audio;
  of.connector = sound_connector();
  model.connector = {{model.encoder.hidden, model.llm.hidden}, 2};
  of.audio_token = root.token("audio_token_index", "audio_token_id", model.llm.vocabulary);
  return model;
}

}  // namespace dflop
