// dflop data describes the workload of a data set for one model.
#include <fmt/format.h>

#include "costmodel/analytic/flops.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/data.hpp"
#include "traces/data/profile.hpp"
#include "traces/files/samples.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

std::string samples_csv(const ModelSpec& model, const std::vector<Sample>& samples) {
  Table table;
  for (const char* key : {"id", "encoder_sequences", "encoder_tokens", "encoder_attention_pairs",
                          "llm_tokens", "llm_attention_pairs"}) {
    table.columns.push_back({key, key});
  }
  if (model.second) {
    for (const char* key :
         {"second_encoder_sequences", "second_encoder_tokens", "second_encoder_attention_pairs"})
      table.columns.push_back({key, key});
  }
  for (const Sample& sample : samples) {
    const Workload encoder = sample.encoder();
    const Workload llm = sample.llm();
    table.rows.push_back({sample.id, encoder.sequences, encoder.tokens, encoder.attention_pairs, llm.tokens,
                          llm.attention_pairs});
    if (!model.second) continue;
    const SecondWork& second = encoder.second;
    for (const std::int64_t count : {second.sequences, second.tokens, second.attention_pairs})
      table.rows.back().push_back(count);
  }
  return to_csv(table);
}

/// Returns, per sample, the encoder's forward FLOP divided by the LLM's.
std::vector<double> flop_ratios(const ModelSpec& model, const std::vector<Sample>& samples) {
  std::vector<double> ratios;
  for (const Sample& sample : samples) {
    const double llm = llm_flop(model, sample.llm()).count;
    ratios.push_back(llm > 0 ? encoder_flop(model, sample.encoder()).count / llm : 0.0);
  }
  return ratios;
}

/// Lists the series. If some samples have more LLM tokens than `cut` (0: no cut), the name of that series
/// says that the model cuts them.
Table profile_table(const DataProfile& profile, std::int64_t cut) {
  Table table;
  table.columns = {{"series", "series"}, {"mean", "mean", 2}, {"min", "min", 2}, {"p10", "p10", 2},
                   {"p50", "p50", 2},    {"p90", "p90", 2},   {"p99", "p99", 2}, {"max", "max", 2}};
  for (const Series& s : profile.series) {
    const bool is_cut = cut > 0 && s.name == "llm_tokens" && s.max > static_cast<double>(cut);
    const std::string name = is_cut ? fmt::format("{}, before the cut at {}", s.name, cut) : s.name;
    table.rows.push_back({name, s.mean, s.min, s.p10, s.p50, s.p90, s.p99, s.max});
  }
  return table;
}

/// Reads samples. Samples of records are not cut, unless a cut is requested or the output must be readable as
/// samples again.
std::vector<Sample> read_data_samples(const Values& values, const ModelSpec& model, bool as_samples) {
  const auto data = values["data"].as<std::string>();
  if (kind_of_shards(data)) return open_shards(values, model)->samples();
  refuse_options_of_shards(values, data);
  PreprocessOptions options = read_preprocess_options(values, model, read_seed(values));
  if (const auto rule = read_text(values, "preprocess")) {
    options.rule = *rule;
    options.media.reset();
  }
  options.max_tokens = read_optional_integer(values, "max-tokens", 1, kMaxTokensOfSample)
                           .value_or(as_samples ? model.max_tokens : 0);
  return load_samples(data, options, true, nullptr, given_options_of_records(values));
}

int run_data(const Values& values) {
  const ModelSpec model = find_model(values["model"].as<std::string>());
  const Format format = read_format(values);
  const auto samples_out = read_output(values, "samples-out");
  const auto profile_out = read_output(values, "profile-out");
  const auto data = values["data"].as<std::string>();
  const bool as_samples = samples_out && samples_out->ends_with(".json");
  const std::vector<Sample> samples = read_data_samples(values, model, as_samples);
  const DataProfile profile = profile_data(samples, flop_ratios(model, samples));
  const auto json = [&] { return to_json(profile, data, model.name); };
  StagedOutputs files;
  if (samples_out) files.add(*samples_out, as_samples ? samples_json(samples) : samples_csv(model, samples));
  if (profile_out) files.add(*profile_out, json());
  files.commit();
  const bool is_cut_later = is_for_people(format) && values.count("max-tokens") == 0;
  const Table table = profile_table(profile, is_cut_later ? model.max_tokens : 0);
  const auto text = [&] {
    std::string all = fmt::format("{} samples:", profile.samples);
    for (int m = 0; m < kModalities; ++m) {
      if (profile.by_modality[m] > 0)
        all += fmt::format(" {} {}", profile.by_modality[m], to_string(static_cast<Modality>(m)));
    }
    return all + "\n\n" + terminal_text(table);
  };
  print_result(format, text, json, table);
  return 0;
}

}  // namespace

Command data_command() {
  Command command{
      .name = "data",
      .task = Task::data,
      .summary = "show how many tokens and FLOP a model needs for a data set",
      .description =
          R"(Preprocesses every record as the model does and prints the distributions of encoder tiles,
encoder tokens, LLM tokens and the encoder-to-LLM FLOP ratio. llm_tokens = visual or audio tokens + text
tokens, counted before samples are cut to the model's max length, unless --max-tokens is given; the table
names that length.)",
      .example = "dflop data --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b",
      .run = run_data,
  };
  add_data_options(command.options);
  add_model_option(command.options, text("NAME|FILE|DIR").required());
  add_seed_option(command.options);
  command.options.add(
      OptionGroup::data,
      {{"preprocess", text("RULE"),
        "preprocessing rule to use instead of the model's: llava-1.5, llava-next, "
        "llava-ov, llava-ov-dflop, internvl2.5, qwen2-vl, qwen2.5-vl, qwen2.5-omni, qwen3-vl, qwen2-audio, "
        "tiny-vlm or text"}});
  command.options.add(
      OptionGroup::output,
      {
          {"samples-out", text("FILE").common(),
           "write one CSV row per sample, with an apostrophe before ids that a spreadsheet would run as a "
           "formula; or, if the name ends in .json, samples for --data, cut to the model's max length: an index of shards "
           "from which to make plans",
           "index"},
          {"profile-out", text("FILE").common(), "write the data profile with histograms as JSON"},
      });
  return command;
}

}  // namespace dflop
