// A model's config.json and, after a line "---", its preprocessor_config.json: an accepted model must allow
// counting, and determine how pictures, videos and sounds are processed.
#include <algorithm>
#include <memory>

#include "core/program/lowering.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/media/model_media.hpp"

namespace dflop {
namespace {

std::vector<Record> records_of(const ModelSpec& model) {
  Record record;
  record.id = "fuzz";
  if (model.front().kind == FrontKind::sound) {
    record.modality = Modality::audio;
    record.audio_s = 31.5;
    return {record};
  }
  record.modality = Modality::image;
  record.image_count = 1;
  record.images = {{640, 333}};
  Record video;
  video.id = "video";
  video.modality = Modality::video;
  video.video_frames = 90;
  video.video_fps = 30;
  video.video_size = ImageSize{320, 200};
  return {record, video};
}

void read(std::string_view text) {
  constexpr std::string_view kBetween = "\n---\n";
  const std::size_t end = text.find(kBetween);
  const ModelSpec model = parse_hugging_face(text.substr(0, end), "config.json");
  Stage whole;
  whole.encoder_layers = model.encoder.layers;
  whole.llm_layers = model.llm.layers;
  whole.front = whole.connector = model.encoder.layers > 0;
  whole.embedding = whole.head = true;
  for (const int tp : {1, 3}) {
    whole.tp = tp;
    require(stage_parameters(whole, model) > 0);
  }
  if (model.encoder.layers == 0) return;
  std::optional<std::string> settings;
  if (end != std::string_view::npos) settings = text.substr(end + kBetween.size());
  if (const auto mel = second_processor(model, settings, "preprocessor_config.json")) {
    for (const std::int64_t samples : {kMelHop, mel->chunk}) {
      const MelSpectrum sound = mel_shape(samples, *mel);
      require(sound.frames > 0 && sound.valid_frames <= sound.frames);
    }
  }
  PreprocessOptions options;
  options.rule = model.preprocess;
  options.media =
      std::make_shared<ModelMedia>(model, model_processor(model, settings, "preprocessor_config.json"));
  for (const Record& record : records_of(model)) {
    for (const Sample& sample : preprocess({&record, 1}, options, "records.csv").samples) {
      require(sample.encoder().tokens > 0 && sample.encoder_output_tokens > 0);
      require(sample.encoder().attention_pairs > 0);
    }
  }
}

}  // namespace
}  // namespace dflop

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) { dflop::read(text); });
}
