#include "backend/content/generator.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/program/lowering.hpp"

namespace dflop {
namespace {

constexpr int kShards = 4096;  // of optimizer states; the rank holds one and uses none
const std::string kPrompt = "prompt";

/// Returns a plan for one sample with encoder and LLM on separate stages, both of which one rank may hold.
Plan one_sample(const ModelSpec& model) {
  Plan plan;
  plan.gbs = 1;
  plan.layout = model.encoder.layers > 0 ? Layout::disaggregated : Layout::uniform;
  plan.encoder.layers = {model.encoder.layers};
  plan.llm.layers = {model.llm.layers};
  plan.recomputation = Recomputation::none;
  plan.sequence_parallel = false;
  return plan;
}

/// Returns the position whose target is the first trained token.
std::int64_t first_question(const TokenSequence& tokens) {
  const auto found = std::find_if(tokens.targets.begin(), tokens.targets.end(),
                                  [](std::int32_t target) { return target != kNoTarget; });
  if (found == tokens.targets.end()) {
    throw Error(ErrorKind::input, "expected a sample with an answer of the assistant, found none");
  }
  return found - tokens.targets.begin();
}

}  // namespace

SampleContent prompt_of(const SampleContent& sample) {
  const TokenSequence& all = sample.tokens;
  const std::int64_t rows = first_question(all) + 1;
  SampleContent prompt;
  TokenSequence& tokens = prompt.tokens;
  tokens.rows = rows;
  for (std::size_t i = 0; i < all.ids.size() && all.id_places[i] < rows; ++i) {
    tokens.ids.push_back(all.ids[i]);
    tokens.id_places.push_back(all.id_places[i]);
  }
  for (const std::int32_t place : all.newlines) {
    if (place < rows) tokens.newlines.push_back(place);
  }
  tokens.targets.assign(static_cast<std::size_t>(rows), kNoTarget);
  const std::int64_t axes = std::ssize(all.positions) / std::max<std::int64_t>(all.rows, 1);
  tokens.positions.assign(all.positions.begin(), all.positions.begin() + rows * axes);
  for (const EncoderSequence& sequence : sample.sequences) {
    const auto last = std::max_element(sequence.places.begin(), sequence.places.end());
    if (last == sequence.places.end() || *last < rows) prompt.sequences.push_back(sequence);
  }
  return prompt;
}

void add_token(TokenSequence& tokens, std::int32_t id) {
  const std::int64_t axes = std::ssize(tokens.positions) / std::max<std::int64_t>(tokens.rows, 1);
  // The previous token is text, whose positions are the same on all axes.
  const std::int32_t next = tokens.positions.empty() ? 0 : tokens.positions.back() + 1;
  tokens.positions.insert(tokens.positions.end(), static_cast<std::size_t>(axes), next);
  tokens.ids.push_back(id);
  tokens.id_places.push_back(static_cast<std::int32_t>(tokens.rows));
  tokens.targets.push_back(kNoTarget);
  ++tokens.rows;
}

Generator::Generator(const ModelSpec& model, const RankContext& rank, std::uint64_t seed,
                     const WeightSource* weights)
    : model_(model), plan_(one_sample(model)), rank_(rank) {
  require_live(model);
  const std::vector<StagePlace> places = stage_places(plan_stages(plan_, model));
  const auto make = [&](const StagePlace& place) {
    return std::make_unique<StageModule>(model, place, kShards, 0, seed, rank_, weights);
  };
  if (places.size() > 1) encoder_ = make(places.front());
  llm_ = make(places.back());
}

Tensor Generator::encode(const StageInput& input) const {
  if (!encoder_ || input.encoder->sent_rows() == 0) return {rank_, 0, model_.sent_width()};
  encoder_->prepare(input);
  StageTape tape;
  return encoder_->forward({}, input, {}, tape);
}

std::int32_t Generator::likeliest(const Tensor& encoded, const StageInput& input,
                                  std::int64_t vocabulary) const {
  llm_->prepare(input);
  const Tensor logits = llm_->logits(encoded, *input.llm, {static_cast<std::int32_t>(input.llm->rows() - 1)});
  const std::vector<double> values =
      download(rank_, logits.view().data, rank_.kernels.dtype(),
               static_cast<std::size_t>(std::min(vocabulary, logits.columns())));
  return static_cast<std::int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

Answer Generator::answer(const SampleContent& sample, std::int64_t most, std::int64_t vocabulary) const {
  Answer answer;
  const std::vector<std::int32_t>& targets = sample.tokens.targets;
  for (auto t = static_cast<std::size_t>(first_question(sample.tokens));
       t < targets.size() && targets[t] != kNoTarget; ++t) {
    answer.expected.push_back(targets[t]);
  }
  StoredContents contents;
  SampleContent prompt = in_precision(prompt_of(sample), rank_.kernels.dtype());
  Assignment assignment{1, 1, {0}};
  StageInput input;
  Tensor encoded;
  while (std::ssize(answer.found) < most &&
         (model_.max_tokens == 0 || prompt.tokens.rows < model_.max_tokens)) {
    const std::vector<Sample> samples{shape_of(model_, kPrompt, prompt)};
    contents.keep(kPrompt, prompt);
    const BatchContent batch(plan_, model_, samples, assignment, contents);
    if (answer.found.empty()) {
      input.encoder = batch.encoder(0, 0, {true, true});
      encoded = encode(input);
      for (EncoderSequence& sequence : prompt.sequences) sequence.values = {};
    }
    input.llm = batch.llm(0, 0);
    answer.found.push_back(likeliest(encoded, input, vocabulary));
    if (answer.found.back() == answer.expected.back()) break;
    add_token(prompt.tokens, answer.found.back());
  }
  return answer;
}

}  // namespace dflop
