// A Generator lets a model answer the prompts of samples, so that users can look at what it has learned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/model/stage_module.hpp"
#include "backend/model/weight_source.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "traces/dataset/sample_content.hpp"

namespace dflop {

/// An Answer holds the tokens of a sample's own first answer and the tokens of the model's answer.
struct Answer {
  std::vector<std::int32_t> expected;  ///< the sample's answer: its first run of trained tokens
  std::vector<std::int32_t> found;
};

/// A Generator holds a whole model on one rank, with memory for weights and gradients but almost none for
/// optimizer states.
class Generator {
 public:
  /// Takes the weights from `weights` or, if that is null, draws them from `seed`. The tp group of `rank`
  /// must have only this rank. Model and rank must outlive the generator. @throws what StageModule's
  /// constructor throws
  Generator(const ModelSpec& model, const RankContext& rank, std::uint64_t seed, const WeightSource* weights);

  /// Answers a sample from its prompt: everything before the first trained token. Each new token is the one
  /// with the largest logit among the ids below `vocabulary`; of equal logits, the first counts. (A model's
  /// table may have more rows than there are tokens.) The answer ends with the token that ends the sample's
  /// own answer, after `most` tokens, or when the sequence has the model's max length.
  ///
  /// There is no cache of keys and values: for each token, the LLM recomputes the whole sequence. So n
  /// tokens after a prompt of p tokens compute about n (p + n / 2) rows. That is fast enough to look at some
  /// answers, but not to serve a model.
  /// @throws Error (input) for a sample without trained tokens
  Answer answer(const SampleContent& sample, std::int64_t most, std::int64_t vocabulary) const;

 private:
  /// Returns the encoder's tokens for a prompt; empty if the model has no encoder.
  Tensor encode(const StageInput& input) const;
  std::int32_t likeliest(const Tensor& encoded, const StageInput& input, std::int64_t vocabulary) const;

  const ModelSpec& model_;
  Plan plan_;
  const RankContext& rank_;
  std::unique_ptr<StageModule> encoder_;  // null for text models
  std::unique_ptr<StageModule> llm_;
};

/// Returns the part of a sample before its first trained token. @throws Error (input) for a sample without
/// trained tokens
SampleContent prompt_of(const SampleContent& sample);

/// Appends a text token. Its position is the next one, on all axes.
void add_token(TokenSequence& tokens, std::int32_t id);

}  // namespace dflop
