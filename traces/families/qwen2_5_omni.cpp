// Qwen2.5-Omni's thinker sees with Qwen2.5-VL's encoder and hears with Qwen2-Audio's, which gets sounds in
// parts (transformers modeling_qwen2_5_omni.py).
#include <algorithm>
#include <tuple>

#include "traces/families/config.hpp"

namespace dflop {

ModelSpec read_qwen2_5_omni(const Config& thinker) {
  ModelSpec model = read_qwen_vl(thinker, ModelFamily::qwen2_5_omni);
  Architecture& of = *model.architecture;
  of.audio_token = thinker.token("audio_token_index", "audio_token_id", model.llm.vocabulary);
  const Config audio = thinker.object("audio_config");
  SecondEncoder& second = model.second.emplace();
  std::tie(second.encoder, second.front) = read_sound_encoder(audio);
  second.form = sound_connector();
  second.connector = {{second.encoder.hidden, audio.size("output_dim", model.llm.hidden, kMaxConfigWidth)},
                      2};
  if (second.connector.widths.back() != model.llm.hidden)
    audio.at("output_dim").refuse_type("the LLM's width {}", model.llm.hidden);
  const int window = audio.size("n_window", 100);
  if (window % 2 != 0) {
    audio.at("n_window")
        .refuse_type(
            "an even number, because pairs of rows are averaged, and a pair must not "
            "span two parts of a sound");
  }
  if (window > second.front.table)
    audio.at("n_window").refuse_type("at most 'max_source_positions', {}", second.front.table);
  of.sound.part = 2 * std::int64_t{window};
  const double chunk = thinker.number("seconds_per_chunk", 2) * of.picture.positions_per_s;
  of.sound.positions_per_chunk = std::max<std::int64_t>(1, static_cast<std::int64_t>(chunk));
  return model;
}

}  // namespace dflop
