#include "traces/files/samples.hpp"

#include <algorithm>

#include "traces/text/json_writer.hpp"

namespace dflop {
namespace {

constexpr std::string_view kSamplesSchema = "dflop.samples";
constexpr int kSamplesVersion = 1;

constexpr std::int64_t kMaxSequences = 1'000'000;
constexpr std::int64_t kMaxSequenceTokens = 1'000'000;
constexpr std::int64_t kMaxEncoderTokens = 1'000'000'000;  // of one sample
constexpr std::int64_t kMaxLlmTokens = std::int64_t{1} << 30;

EncoderSequences read_encoder_sequences(const JsonValue& json) {
  const std::vector<JsonValue> items = json.elements();
  if (items.size() != 3 && items.size() != 4)
    json.refuse_type("[count, tokens, attention pairs] or, for a model's second encoder, a 2 after these");
  EncoderSequences group;
  group.count = items[0].integer<std::int64_t>(1, kMaxSequences);
  group.tokens = items[1].integer<std::int64_t>(1, kMaxSequenceTokens);
  // Each token attends at least to itself.
  group.attention_pairs = items[2].integer<std::int64_t>(group.tokens, group.tokens * group.tokens);
  group.second = items.size() == 4 && items[3].integer(1, 2) == 2;
  return group;
}

std::vector<EncoderSequences> read_encoder_work(const JsonValue& json) {
  std::vector<EncoderSequences> groups;
  std::int64_t tokens = 0;
  for (const JsonValue& item : json.elements()) {
    groups.push_back(read_encoder_sequences(item));
    tokens += groups.back().count * groups.back().tokens;
    if (tokens > kMaxEncoderTokens)
      item.refuse("expected at most {} encoder tokens in a sample, found {}", kMaxEncoderTokens, tokens);
  }
  return groups;
}

/// Rejects samples that no preprocessing makes, or that would make a schedule meaningless.
void check_sample(const JsonValue& json, const Sample& sample) {
  if (sample.modality == Modality::text && !sample.encoder_sequences.empty()) {
    json.at("encoder_sequences").refuse_type("none in a text sample");
  }
  const JsonValue output = json.at("encoder_output_tokens");
  if (sample.encoder_sequences.empty() && sample.encoder_output_tokens > 0) {
    output.refuse_type("0 without encoder sequences");
  }
  if (sample.encoder_output_tokens > sample.llm_tokens) {
    output.refuse_type("at most the {} LLM tokens", sample.llm_tokens);
  }
}

/// Sums of tokens and attention pairs over an iteration fit in 64 bits.
constexpr double kMaxWork = 4e18;
/// A sample of a data set is small enough that every batch fits these sums.
constexpr std::int64_t kMaxDataTokens = 10'000'000;
constexpr double kMaxDataPairs = 2e13;

/// Checks a sample that may be drawn into any batch.
void check_data_sample(const JsonValue& json, const Sample& sample) {
  if (sample.llm_tokens > kMaxDataTokens) {
    json.at("llm_tokens").refuse_type("at most {} tokens of a sample of a data set", kMaxDataTokens);
  }
  if (sample.modality != Modality::text && sample.encoder_sequences.empty()) {
    json.at("encoder_sequences")
        .refuse_type("at least one group in a sample of modality {}", to_string(sample.modality));
  }
  if (!sample.encoder_sequences.empty() && sample.llm_tokens > 0 && sample.encoder_output_tokens == 0) {
    json.at("encoder_output_tokens").refuse_type("at least 1 with encoder sequences");
  }
  const Workload encoder = sample.encoder();
  const auto pairs = static_cast<double>(std::max(encoder.attention_pairs, encoder.second.attention_pairs));
  if (pairs > kMaxDataPairs) {
    json.at("encoder_sequences")
        .refuse("expected at most {:g} attention pairs in a sample of a data set, found {:g}", kMaxDataPairs,
                pairs);
  }
}

}  // namespace

std::string sample_line(const Sample& sample) {
  std::string line = "{\"id\":";
  append_json(line, sample.id);
  line += ",\"modality\":";
  append_json(line, to_string(sample.modality));
  line += ",\"encoder_sequences\":[";
  for (const EncoderSequences& group : sample.encoder_sequences) {
    if (line.back() != '[') line += ',';
    std::vector<std::int64_t> row = {group.count, group.tokens, group.attention_pairs};
    if (group.second) row.push_back(2);
    append_json_row(line, row);
  }
  line += "],\"encoder_output_tokens\":";
  append_json(line, sample.encoder_output_tokens);
  line += ",\"llm_tokens\":";
  append_json(line, sample.llm_tokens);
  if (sample.untrained_tokens > 0) {
    line += ",\"untrained_tokens\":";
    append_json(line, sample.untrained_tokens);
  }
  return line += '}';
}

Sample read_sample(const JsonValue& json) {
  json.require_keys({"id", "modality", "encoder_sequences", "encoder_output_tokens", "llm_tokens"},
                    {"untrained_tokens"});
  Sample sample;
  sample.id = json.at("id").string();
  sample.modality = json.at("modality").choice<Modality>();
  sample.encoder_sequences = read_encoder_work(json.at("encoder_sequences"));
  sample.encoder_output_tokens =
      json.at("encoder_output_tokens").integer<std::int64_t>(0, kMaxSequenceTokens);
  sample.llm_tokens = json.at("llm_tokens").integer<std::int64_t>(0, kMaxLlmTokens);
  if (json.has("untrained_tokens"))
    sample.untrained_tokens = json.at("untrained_tokens").integer<std::int64_t>(0, sample.llm_tokens);
  check_sample(json, sample);
  return sample;
}

void check_batch(const JsonValue& json, const std::vector<Sample>& samples) {
  double encoder_work = 0;
  double llm_work = 0;
  for (const Sample& sample : samples) {
    const Workload encoder = sample.encoder();
    encoder_work += static_cast<double>(
        std::max({encoder.all_tokens(), encoder.attention_pairs, encoder.second.attention_pairs}));
    llm_work += static_cast<double>(sample.llm().attention_pairs);
  }
  const double largest = std::max(encoder_work, llm_work);
  if (largest > kMaxWork) {
    json.refuse("expected at most {:g} attention pairs in an iteration, found {:g}", kMaxWork, largest);
  }
}

bool holds_samples(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

std::string samples_json(std::span<const Sample> samples) {
  JsonWriter writer(kSamplesSchema, kSamplesVersion);
  writer.begin_array("samples");
  for (const Sample& sample : samples) writer.raw("", sample_line(sample));
  writer.end_array();
  return writer.finish();
}

std::vector<Sample> parse_samples(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kSamplesSchema, kSamplesVersion);
  root.require_keys({"schema", "version", "samples"});
  std::vector<Sample> samples;
  for (const JsonValue& sample : root.at("samples").elements()) {
    samples.push_back(read_sample(sample));
    check_data_sample(sample, samples.back());
  }
  if (samples.empty()) root.at("samples").refuse_type("at least one sample");
  return samples;
}

}  // namespace dflop
