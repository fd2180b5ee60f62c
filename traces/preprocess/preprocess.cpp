#include "traces/preprocess/preprocess.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "traces/data/records.hpp"
#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

const std::array<Rule, 12>& rules() {
  static const std::array<Rule, 12> rules = {llava15_rule(),        llava_next_rule(),  llava_ov_rule(),
                                             llava_ov_dflop_rule(), internvl_rule(),    qwen2_vl_rule(),
                                             qwen25_vl_rule(),      qwen25_omni_rule(), qwen3_vl_rule(),
                                             qwen2_audio_rule(),    tiny_vlm_rule(),    text_rule()};
  return rules;
}

const Rule& find_rule(std::string_view name) {
  const auto found =
      std::find_if(rules().begin(), rules().end(), [&](const Rule& rule) { return rule.name == name; });
  if (found == rules().end()) {
    refuse_input("", "unknown preprocessing rule '{}'; expected one of {}", name,
                 fmt::join(preprocess_rules(), ", "));
  }
  return *found;
}

Encode encode_of(const Rule& rule, Modality modality) {
  return rule.encode[static_cast<std::size_t>(modality)];
}

/// Returns "text,image", the form of --modalities.
std::string join_modalities(const Rule& rule) {
  std::vector<std::string_view> names;
  for (const Modality modality : rule_modalities(rule.name)) names.push_back(to_string(modality));
  return fmt::format("{}", fmt::join(names, ","));
}

void check_size(ImageSize size, std::string_view option) {
  if (std::min(size.width, size.height) < 1 || std::max(size.width, size.height) > kMaxImageSide) {
    throw Error(
        ErrorKind::usage,
        fmt::format("expected sides from 1 to {}, found {}x{}", kMaxImageSide, size.width, size.height),
        std::string(option));
  }
}

void check_options(const PreprocessOptions& options, const Rule& rule) {
  check_size(options.assume_image, "--assume-image");
  check_size(options.assume_video.size, "--assume-video");
  const double fps = options.assume_video.fps;
  if (!(fps >= kMinFps && fps <= kMaxFps)) {
    throw Error(ErrorKind::usage, fmt::format("expected from {} to {} fps, found {}", kMinFps, kMaxFps, fps),
                "--assume-video");
  }
  if (options.max_tokens < 0) {
    throw Error(ErrorKind::usage, fmt::format("expected 0 (no cut) or more, found {}", options.max_tokens),
                "--max-tokens");
  }
  for (const Modality modality : options.modalities.value_or(std::vector<Modality>{})) {
    if (encode_of(rule, modality) == nullptr) {
      throw Error(
          ErrorKind::usage,
          fmt::format("rule '{}' takes {}, found {}", rule.name, join_modalities(rule), to_string(modality)),
          "--modalities");
    }
  }
}

bool is_selected(const PreprocessOptions& options, Modality modality) {
  if (!options.modalities) return true;
  return std::find(options.modalities->begin(), options.modalities->end(), modality) !=
         options.modalities->end();
}

Sample to_sample(const Record& record, Encoding encoding, std::int64_t text, const Rule& rule,
                 SampleCut& cut) {
  const std::int64_t text_tokens = std::min(text, rule.max_text_tokens.value_or(text));
  Sample sample;
  sample.id = record.id;
  sample.modality = record.modality;
  sample.encoder_sequences = std::move(encoding.sequences);
  sample.llm_tokens = cut.take(encoding.output_tokens + text_tokens);
  sample.encoder_output_tokens = std::min(encoding.output_tokens, sample.llm_tokens);
  return sample;
}

}  // namespace

std::vector<ImageRun> RecordShapes::images() const {
  if (record_.images.empty()) {
    assume("images", "--assume-image WxH", assumptions_.image_sizes);
    return {{options_.assume_image, record_.image_count}};
  }
  std::vector<ImageRun> runs;
  for (const ImageSize& size : record_.images) {
    if (runs.empty() || runs.back().size != size) runs.push_back({size, 0});
    ++runs.back().count;
  }
  return runs;
}

ImageSize RecordShapes::video_size() const {
  if (record_.video_size) return *record_.video_size;
  assume("video_wh", "--assume-video WxH@FPS", assumptions_.video_sizes);
  return options_.assume_video.size;
}

VideoTiming RecordShapes::video_timing() const {
  VideoTiming timing;
  if (record_.video_fps) {
    timing.fps = *record_.video_fps;
  } else if (record_.video_frames && record_.video_s) {
    timing.fps = static_cast<double>(*record_.video_frames) / *record_.video_s;
  } else {
    assume("video_fps", "--assume-video WxH@FPS", assumptions_.video_fps);
    timing.fps = options_.assume_video.fps;
  }
  timing.frames = record_.video_frames
                      ? *record_.video_frames
                      : std::max<std::int64_t>(1, std::llround(*record_.video_s * timing.fps));
  return timing;
}

std::int64_t RecordShapes::text_tokens() const {
  if (record_.text_tokens) return *record_.text_tokens;
  assume("text_tokens", "--assume-text N", assumptions_.texts);
  return options_.assume_text;
}

Random RecordShapes::random() const {
  return Random(options_.seed, stable_hash(record_.id));
}

void RecordShapes::fail(std::string_view column, std::string_view message) const {
  refuse_input(fmt::format("{}:row {}, column '{}'", file_, record_.row, column), "{}", message);
}

void RecordShapes::assume(std::string_view column, std::string_view option, std::int64_t& count) const {
  if (options_.strict) {
    fail(
        column,
        fmt::format("expected a value under --strict, found an empty field; without --strict, {} supplies it",
                    option));
  }
  ++count;
}

Preprocessed preprocess(std::span<const Record> records, const PreprocessOptions& options,
                        std::string_view file) {
  const Rule& rule = find_rule(options.rule);
  check_options(options, rule);
  Preprocessed result;
  result.samples.reserve(records.size());
  result.cut.longest = options.max_tokens;
  result.cut.drops = options.drop_long;
  for (const Record& record : records) {
    if (!is_selected(options, record.modality)) {
      ++result.left_out;
      continue;
    }
    const RecordShapes shapes(record, options, file, result.assumptions);
    const Encode encode = encode_of(rule, record.modality);
    if (encode == nullptr) {
      shapes.fail("modality",
                  fmt::format("rule '{0}' takes {1}, found {2}; --modalities {1} leaves such records out",
                              rule.name, join_modalities(rule), to_string(record.modality)));
    }
    const bool is_own = options.media != nullptr && record.modality != Modality::text;
    Encoding encoding = is_own ? options.media->encode(shapes, record.modality) : encode(shapes);
    const std::int64_t longer = result.cut.samples;
    Sample sample = to_sample(record, std::move(encoding), shapes.text_tokens(), rule, result.cut);
    if (options.drop_long && result.cut.samples > longer) {
      result.cut.lost += sample.llm_tokens;
    } else {
      result.samples.push_back(std::move(sample));
    }
  }
  return result;
}

std::vector<std::string_view> preprocess_rules() {
  std::vector<std::string_view> names;
  for (const Rule& rule : rules()) names.push_back(rule.name);
  return names;
}

std::vector<Modality> rule_modalities(std::string_view name) {
  const Rule& rule = find_rule(name);
  std::vector<Modality> modalities;
  for (const Modality modality : all_of<Modality>()) {
    if (encode_of(rule, modality) != nullptr) modalities.push_back(modality);
  }
  return modalities;
}

}  // namespace dflop
