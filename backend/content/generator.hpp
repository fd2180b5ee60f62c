// A Generator has a model answer what samples ask: to look at what it has learned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/content/sample_content.hpp"
#include "backend/model/stage_module.hpp"
#include "backend/model/weight_source.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// An Answer is a sample's first answer and the model's, as tokens.
struct Answer {
  std::vector<std::int32_t> expected;  ///< the first run of trained tokens
  std::vector<std::int32_t> found;
};

/// A Generator holds a whole model on one rank: weights and gradients, and next to no optimizer states.
class Generator {
 public:
  /// Takes weights from a source or, where that is null, draws them from `seed`. Model and rank, which is
  /// alone, outlive the generator. @throws Error (input) as StageModule; OutOfMemory
  Generator(const ModelSpec& model, const RankContext& rank, std::uint64_t seed, const WeightSource* weights);

  /// Answers a sample, of which it sees what stands before the first trained token. Each token is the one
  /// with the largest logit of those below `vocabulary`, the first of equal ones: a model's table may have
  /// more rows than there are tokens. The answer ends with the token with which the sample's own ends, after
  /// `most` tokens, or where the model's longest sequence ends.
  ///
  /// Each token goes through the whole LLM sequence once more, as nothing is kept of keys and values: n
  /// tokens after p take n (p + n / 2) rows. That is enough to look at some answers, and is no way to serve a
  /// model.
  /// @throws Error (input) for a sample without trained tokens
  Answer answer(const SampleContent& sample, std::int64_t most, std::int64_t vocabulary) const;

 private:
  /// Returns what the encoder sends of a prompt; nothing without an encoder.
  Tensor encode(const StageInput& input) const;
  std::int32_t likeliest(const Tensor& encoded, const StageInput& input, std::int64_t vocabulary) const;

  const ModelSpec& model_;
  Plan plan_;
  const RankContext& rank_;
  std::unique_ptr<StageModule> encoder_;  // null for models of text
  std::unique_ptr<StageModule> llm_;
};

/// Returns what stands in a sample before its first trained token, whose place is `end` - 1's target.
/// @throws Error (input) for a sample without trained tokens
SampleContent prompt_of(const SampleContent& sample);

/// Adds a token of text behind a sample's last: one position further on all axes.
void add_token(TokenSequence& tokens, std::int32_t id);

}  // namespace dflop
