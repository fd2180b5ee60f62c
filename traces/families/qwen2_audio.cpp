#include "traces/families/config.hpp"

namespace dflop {

ModelSpec read_qwen2_audio(const Config& root) {
  const Config audio = root.object("audio_config");
  audio.require("activation_function", "gelu");
  audio.require_flag("scale_embedding", false);
  ModelSpec model;
  model.preprocess = "qwen2-audio";
  model.llm = read_inner_text(root, "qwen2");
  model.encoder = read_encoder(audio, "whisper", "encoder_layers", "d_model", "encoder_ffn_dim",
                               "encoder_attention_heads");
  LayerForm form;
  form.key_bias = false;
  form.activation = Activation::gelu_erf;
  form.rotary.reset();
  model.encoder.form = form;
  Architecture& of = model.architecture.emplace();
  of.family = ModelFamily::qwen2_audio;
  of.front = {.kind = FrontKind::sound,
              .values = audio.size("num_mel_bins", 128, 512),
              .bias = true,
              .table = audio.size("max_source_positions", 1500, kMaxConfigWidth),
              .frozen_table = true};
  of.connector.selects = of.connector.averages = true;
  of.connector.norm = NormKind::layer;
  of.connector.epsilon = 1e-5;
  model.connector = {{model.encoder.hidden, model.llm.hidden}, 2};
  of.audio_token = root.token("audio_token_index", "audio_token_id");
  return model;
}

}  // namespace dflop
