// A stage warms up with microbatches that run all of its code.
#include "backend/run/warm_up.hpp"

#include <gtest/gtest.h>

namespace dflop {
namespace warm_up_test {

/// Returns the input of a stage with two encoders, which have these rows; without an LLM if `llm` is 0.
StageInput input_of(std::int64_t first, std::int64_t second, std::int64_t llm) {
  const auto with_rows = [](auto input, std::int64_t rows) {
    if (rows > 0) input.add_sequence(rows);
    return input;
  };
  StageInput input;
  input.encoder = with_rows(EncoderInput{}, first);
  input.encoder->second = std::make_shared<EncoderInput>(with_rows(EncoderInput{}, second));
  if (llm > 0) input.llm = with_rows(LlmInput{}, llm);
  return input;
}

using Chosen = std::vector<const StageInput*>;

/// The first microbatch has the most rows of pictures and no sounds, the last has only text.
TEST(WarmUp, RunsEachEncoderAndTheLlm) {
  const StageInput pictures = input_of(8, 0, 9);
  const StageInput sounds = input_of(2, 6, 9);
  const StageInput text = input_of(0, 0, 30);
  EXPECT_EQ(warm_up_inputs({&pictures, &sounds, &text}), (Chosen{&pictures, &sounds, &text}));
}

TEST(WarmUp, RunsAMicrobatchOnce) {
  const StageInput large = input_of(8, 6, 20);
  const StageInput small = input_of(2, 0, 9);
  EXPECT_EQ(warm_up_inputs({&small, &large}), Chosen{&large});
}

TEST(WarmUp, RunsNothingWithoutRows) {
  const StageInput nothing = input_of(0, 0, 0);
  EXPECT_EQ(warm_up_inputs({&nothing}), Chosen{});
  EXPECT_EQ(warm_up_inputs({}), Chosen{});
}

}  // namespace warm_up_test
}  // namespace dflop
