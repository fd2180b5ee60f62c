#include "experiments/options/data_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "core/missing_encoder.hpp"
#include "core/program/loss_weight.hpp"
#include "core/refuse.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/value_text.hpp"
#include "experiments/studies/data.hpp"
#include "traces/data/records.hpp"
#include "traces/media/model_media.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/text_file.hpp"
#include "traces/tokens/chat.hpp"

namespace dflop {
namespace {

/// Reads "640x480".
ImageSize read_size(ValueText& text) {
  constexpr std::int32_t kMax = 1'000'000;
  ImageSize size;
  size.width = text.number(1, kMax);
  text.expect("x");
  size.height = text.number(1, kMax);
  return size;
}

std::vector<Modality> parse_modalities(const std::string& text) {
  std::vector<Modality> modalities;
  for (const std::string_view name : split(text, ',')) {
    const std::optional<Modality> modality = from_string<Modality>(name);
    if (!modality)
      refuse_value("modalities", "a comma-separated list of text, image, multi_image, video, audio", text);
    modalities.push_back(*modality);
  }
  return modalities;
}

/// A DataKind is the content of a data set. Samples count as records.
enum class DataKind : std::uint8_t { records, conversations, token_ids };

DataKind kind_of_data(const std::string& name) {
  const std::optional<ShardKind> shards = kind_of_shards(name);
  if (!shards) return DataKind::records;
  return *shards == ShardKind::megatron ? DataKind::token_ids : DataKind::conversations;
}

/// Returns whether one of a command's data sets is of a kind, so that options for this kind make sense.
bool has_data_of(const Values& values, DataKind kind) {
  for (const char* option : {"data", "eval-data"}) {
    if (values.count(option) > 0 && kind_of_data(values[option].as<std::string>()) == kind) return true;
  }
  return false;
}

bool has_list(const Values& values) {
  for (const char* option : {"data", "eval-data"}) {
    if (values.count(option) > 0 && kind_of_shards(values[option].as<std::string>()) == ShardKind::list)
      return true;
  }
  return false;
}

/// BadSamples says what happens to conversations that cannot be used: without `skip`, the first one is an
/// error; with it, they are left out, and more than `most` are an error.
struct BadSamples {
  bool skip = false;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

/// Reads --bad-samples: "stop", "skip" or "skip:N".
BadSamples read_bad_samples(const Values& values) {
  const std::string text = read_text(values, "bad-samples").value_or("stop");
  if (text == "stop") return {};
  BadSamples bad{true};
  if (text == "skip") return bad;
  ValueText limit("bad-samples", "stop, skip or skip:N, as skip:100", text);
  limit.expect("skip:");
  bad.most = limit.number(std::int64_t{0}, std::int64_t{1'000'000'000});
  limit.expect_end();
  return bad;
}

ExifRule read_exif(const Values& values) {
  const std::string name = read_text(values, "exif").value_or("upright");
  require_one_of("exif", names_of(all_of<ExifRule>()), name);
  return *from_string<ExifRule>(name);
}

/// Appends a line of JSON for each sample that is left out of the data set of an option.
void append_left_out(std::string& lines, const std::string& option,
                     const std::vector<LeftOutSample>& left_out) {
  for (const LeftOutSample& sample : left_out) {
    lines += R"({"id":)";
    append_json(lines, sample.id);
    lines += R"(,"reason":)";
    append_json(lines, sample.why);
    lines += fmt::format(",\"bad\":{}", sample.is_bad);
    if (option != "data") {
      lines += R"(,"option":)";
      append_json(lines, "--" + option);
    }
    lines += "}\n";
  }
}

std::int64_t count_bad(const std::vector<LeftOutSample>& left_out) {
  return std::ranges::count_if(left_out, &LeftOutSample::is_bad);
}

/// @throws Error (input) that says why the first samples are bad if there are more than allowed
void require_few_bad(const std::vector<LeftOutSample>& left_out, std::int64_t most, const std::string& name) {
  constexpr int kNamed = 3;
  const std::int64_t bad = count_bad(left_out);
  if (bad <= most) return;
  std::string first;
  int named = 0;
  for (const LeftOutSample& sample : left_out) {
    if (sample.is_bad && named++ < kNamed)
      first += fmt::format("{}{}", first.empty() ? "" : "; ", sample.why);
  }
  refuse_input(name, "expected at most {} bad samples (--bad-samples), found {}; the first: {}", most, bad,
               first);
}

/// Reads the options for shards that apply to this data set. @throws Error (usage) for options that apply to
/// none of the command's data sets
DatasetOptions read_dataset_options(const Values& values, const ModelSpec& model, const std::string& name) {
  constexpr std::int64_t kLongestSample = 1'000'000;
  std::vector<std::string> given = given_options_of_records(values);
  std::erase(given, "max-tokens");  // also truncates conversations and token ids
  if (values.count("modalities") > 0) given.emplace_back("modalities");
  const bool has_words = kind_of_data(name) == DataKind::conversations;
  if (!given.empty() && !has_data_of(values, DataKind::records)) {
    refuse_option(given.front(), "applies only to records, but " + name + " has " +
                                     (has_words ? "conversations" : "token ids"));
  }
  DatasetOptions options;
  if (const auto form = read_text(values, "chat")) {
    require_one_of("chat", chat_forms(), *form);
    if (!has_data_of(values, DataKind::conversations))
      refuse_option("chat", "applies only to conversations, but " + name + " has token ids");
    if (has_words) options.chat_form = *form;
  }
  if (const auto root = read_text(values, "media-root")) {
    if (!has_list(values))
      refuse_option("media-root", "applies only to JSON lists, but " + name + " is none");
    options.media_root = *root;
  }
  options.exif = read_exif(values);
  if (options.exif != ExifRule::upright && !has_data_of(values, DataKind::conversations))
    refuse_option("exif", "applies only to conversations, but " + name + " has token ids");
  options.skip_bad = read_bad_samples(values).skip;
  if (options.skip_bad && !has_data_of(values, DataKind::conversations))
    refuse_option("bad-samples", "applies only to conversations, but " + name + " has token ids");
  const std::int64_t longest = model.max_tokens > 0 ? model.max_tokens : kLongestSample;
  if (const auto length = read_optional_integer(values, "sequence-length", 1, longest)) {
    if (!has_data_of(values, DataKind::token_ids))
      refuse_option("sequence-length", "applies only to token ids, but " + name + " has conversations");
    if (!has_words) options.sequence_length = *length;
  }
  return options;
}

/// Opens the shards that an option names, and writes --bad-samples-out. @see open_shards()
/// @param check  for a check of data: finds all bad samples, and decodes this number of samples
std::shared_ptr<const Dataset> open_named(const Values& values, const ModelSpec& model,
                                          const std::string& option, const Dataset* before,
                                          std::optional<std::int64_t> check) {
  const auto name = values[option].as<std::string>();
  ModelSpec cut = model;
  cut.max_tokens = read_longest(values, model);
  const bool is_written = option == "data" || option == "eval-data";
  // Check the output before the long work.
  const auto file = is_written ? read_output(values, "bad-samples-out") : std::nullopt;
  DatasetOptions options = read_dataset_options(values, cut, name);
  if (check) {
    options.skip_bad = true;
    options.decoded = *check;
  }
  Progress progress("reading " + name);
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  std::shared_ptr<const Dataset> data = open_dataset(cut, model.name, name, options);
  if (file) {
    std::string lines;
    if (before != nullptr) append_left_out(lines, "data", before->left_out());
    append_left_out(lines, option, data->left_out());
    write_file_atomically(*file, lines);
  }
  return data;
}

/// Rejects sounds of a samples file that the model cannot encode.
void require_sounds_fit(const ModelSpec& model, std::span<const Sample> samples, const std::string& file) {
  const std::int64_t longest = model.architecture ? model.architecture->sound.part / 2 : 0;  // rows
  for (const Sample& sample : samples) {
    if (const std::string missing = missing_encoder(model, sample); !missing.empty())
      throw Error(ErrorKind::input, missing, file);
    for (const EncoderSequences& sequences : sample.encoder_sequences) {
      if (longest == 0 || !sequences.second || sequences.tokens <= longest) continue;
      refuse_input(file, "sample '{}': expected parts of sounds of at most {} rows in model '{}', found {}",
                   sample.id, longest, model.name, sequences.tokens);
    }
  }
}

}  // namespace

std::int64_t read_allowed_bad(const Values& values) {
  const BadSamples bad = read_bad_samples(values);
  return bad.skip ? bad.most : 0;
}

std::int64_t read_longest(const Values& values, const ModelSpec& model) {
  return read_optional_integer(values, "max-tokens", 1, kMaxTokensOfSample).value_or(model.max_tokens);
}

PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed) {
  PreprocessOptions options;
  options.rule = model.preprocess;
  if (model.architecture) {
    options.media = std::make_shared<ModelMedia>(model, read_model_processor(model, model.name),
                                                 read_second_processor(model, model.name));
  }
  options.max_tokens = read_longest(values, model);
  options.drop_long = is_set(values, "drop-long");
  options.seed = seed;
  const auto image = values["assume-image"].as<std::string>();
  ValueText image_text("assume-image", "WxH, as 640x480", image);
  options.assume_image = read_size(image_text);
  image_text.expect_end();
  const auto video = values["assume-video"].as<std::string>();
  ValueText video_text("assume-video", "WxH@FPS, such as 640x360@30", video);
  options.assume_video.size = read_size(video_text);
  video_text.expect("@");
  options.assume_video.fps = video_text.number(0.0, 1e4);
  video_text.expect_end();
  if (options.assume_video.fps == 0) video_text.fail();
  options.assume_text = read_integer(values, "assume-text", 1, kMaxTextTokens);
  options.strict = values["strict"].as<bool>();
  if (const auto list = read_text(values, "modalities")) options.modalities = parse_modalities(*list);
  return options;
}

std::vector<std::string> given_options_of_records(const Values& values) {
  std::vector<std::string> given;
  for (const char* option :
       {"assume-image", "assume-video", "assume-text", "preprocess", "max-tokens", "drop-long", "strict"}) {
    if (values.count(option) > 0 && !values[option].defaulted()) given.emplace_back(option);
  }
  return given;
}

void refuse_options_of_shards(const Values& values, const std::string& file) {
  if (!std::filesystem::exists(file)) return;  // a missing file is reported when it is opened
  const auto refuse = [&](const char* option, const char* kind) {
    refuse_option(option, fmt::format("applies only to {}, but {} has records or samples", kind, file));
  };
  const bool has_conversations = has_data_of(values, DataKind::conversations);
  if (values.count("sequence-length") > 0 && !has_data_of(values, DataKind::token_ids))
    refuse("sequence-length", "token ids");
  if (values.count("chat") > 0 && !has_conversations) refuse("chat", "conversations");
  if (values.count("media-root") > 0 && !has_list(values)) refuse("media-root", "JSON lists");
  if (read_exif(values) != ExifRule::upright && !has_conversations) refuse("exif", "conversations");
  if (read_bad_samples(values).skip && !has_conversations) refuse("bad-samples", "conversations");
  if (values.count("bad-samples-out") > 0 && !has_conversations && !has_data_of(values, DataKind::token_ids))
    refuse("bad-samples-out", "conversations");
}

std::vector<Sample> read_samples(const Values& values, const ModelSpec& model, std::uint64_t seed,
                                 const std::string& option, DataOrigin* origin, bool notes) {
  const auto file = values[option].as<std::string>();
  if (values[option].defaulted() && !std::filesystem::exists(file)) {
    refuse_option(option, fmt::format("the default data set {} is not in this folder; name your own", file));
  }
  if (kind_of_shards(file)) return open_shards(values, model, option, origin, notes)->samples();
  refuse_options_of_shards(values, file);
  std::vector<Sample> samples = load_samples(file, read_preprocess_options(values, model, seed), notes,
                                             origin, given_options_of_records(values));
  require_sounds_fit(model, samples, file);
  if (model.llm.logits_at_once > 0) {  // its runs compute the logits of trained tokens only
    for (Sample& sample : samples) {
      if (sample.untrained_tokens == 0) sample.untrained_tokens = sample.llm_tokens - loss_tokens(sample);
    }
  }
  return samples;
}

std::shared_ptr<const Dataset> open_shards_to_check(const Values& values, const ModelSpec& model,
                                                    std::int64_t decoded) {
  return open_named(values, model, "data", nullptr, decoded);
}

std::shared_ptr<const Dataset> open_shards(const Values& values, const ModelSpec& model,
                                           const std::string& option, DataOrigin* origin, bool notes,
                                           const Dataset* before) {
  const auto name = values[option].as<std::string>();
  const std::shared_ptr<const Dataset> data = open_named(values, model, option, before, {});
  require_few_bad(data->left_out(), read_bad_samples(values).most, name);
  if (!data->note().empty()) say_once(fmt::format("dflop: note: {}\n", data->note()));
  if (const std::string text = describe(data->cut(), std::ssize(data->samples())); !text.empty() && notes)
    say("dflop: note: {}\n", text);
  if (const std::vector<LeftOutSample>& left_out = data->left_out(); !left_out.empty()) {
    const std::int64_t bad = count_bad(left_out);
    say("dflop: note: {} left out, because the model cannot be trained on {}{}; the first: {}\n",
        left_out.size() == 1 ? "a sample is" : fmt::format("{} samples are", left_out.size()),
        left_out.size() == 1 ? "it" : "them", bad > 0 ? fmt::format(" ({} bad)", bad) : "",
        left_out.front().why);
  }
  if (!data->assumption().empty() && notes)
    say_once(fmt::format("dflop: note: assumes {}\n", data->assumption()));
  if (data->samples().empty()) {
    throw Error(
        ErrorKind::input,
        !data->left_out().empty()
            ? "no sample is left to train on"
            : "expected samples, such as KEY.json next to KEY.jpg in a tar, or one in each line of a list, found none",
        name);
  }
  if (origin != nullptr) {
    *origin = {{name, data->fingerprint()}, static_cast<std::int64_t>(data->samples().size()), {}};
    origin->cut = data->cut();
    if (const std::string text = describe(data->cut(), std::ssize(data->samples())); !text.empty())
      origin->assumptions.push_back(text);
    if (const std::int64_t bad = count_bad(data->left_out()); bad > 0)
      origin->assumptions.push_back(fmt::format("{} bad samples left out (--bad-samples)", bad));
    if (!data->assumption().empty()) origin->assumptions.push_back(data->assumption());
  }
  return data;
}

}  // namespace dflop
