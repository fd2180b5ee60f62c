// Runs that are impossible are rejected with a reason, and a rank that fails ends the run of all ranks.
#include <gtest/gtest.h>

#include <functional>

#include "backend/device.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace failures_test {

using testing::disaggregated_plan;
using testing::live_model;
using testing::live_samples;
using testing::LiveRun;
using testing::uniform_plan;

LiveRun run_of(const Plan& plan, const ModelSpec& model, std::optional<Bytes> memory = {}) {
  const std::vector<Sample> samples = live_samples(12, 5);
  return {plan, model, samples, testing::dealt(plan, samples.size()), plan_order(plan), DType::f64, memory};
}

/// Returns the message of the Error (input) that `work` throws.
std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

std::string refusal_of(const Plan& plan, const ModelSpec& model) {
  return refusal([&] { run_of(plan, model); });
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(LiveFailures, AModelThatDoesNotFitIsNotBuilt) {
  try {
    run_of(uniform_plan(1, 1, 2, 2), live_model(), Bytes{10'000});
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_GT(error.needed(), error.available());
    EXPECT_LE(error.available(), Bytes{10'000});
    expect_says(error.what(), "rank 0");
  }
}

/// The limit is one byte less than the largest peak of any rank, so that rank fails while others work or wait
/// for it. They end at once; if they kept waiting, the run would end with a timeout instead.
TEST(LiveFailures, ARankWithoutMemoryEndsTheRun) {
  for (const Plan& plan : {uniform_plan(1, 3, 1, 4), uniform_plan(2, 2, 2, 3), uniform_plan(1, 1, 2, 2),
                           disaggregated_plan({1, 1, 3, {}}, {1, 1, 2, {}}, 3)}) {
    SCOPED_TRACE(describe(plan));
    const Bytes peak = peak_memory(run_of(plan, live_model()).step(true).timeline);
    run_of(plan, live_model(), peak).step(true);  // this much is enough
    LiveRun run = run_of(plan, live_model(), peak - Bytes{1});
    try {
      run.step(true);
      FAIL() << "nothing was thrown";
    } catch (const OutOfMemory& error) {
      EXPECT_GT(error.needed(), error.available());
      expect_says(error.what(), "more are needed");
    }
    EXPECT_ANY_THROW(run.step(true));  // the run cannot continue
  }
}

TEST(LiveFailures, AWorldWithOtherRanksIsRejected) {
  const Plan plan = uniform_plan(1, 1, 2, 2);
  const ModelSpec model = live_model();
  const auto world = std::make_unique<HostWorld>(3);
  const std::string message = refusal([&] { LiveExecutor(plan, model, *world, LiveOptions{DType::f32, 7}); });
  expect_says(message, "2 ranks");
  expect_says(message, "3");
}

TEST(LiveFailures, AProgramOfAnotherPlanIsRejected) {
  LiveRun run(uniform_plan(1, 1, 2, 2), live_samples(4, 5), DType::f32);
  LiveRun other(disaggregated_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 2), live_samples(4, 5), DType::f32);
  run.program = other.program;  // also a program of two ranks
  EXPECT_THROW(run.step(true), Error);
}

TEST(LiveFailures, HeadsThatTpDoesNotDivide) {
  const std::string message = refusal_of(uniform_plan(4, 1, 1, 2), live_model());
  expect_says(message, "llm.layers.0: heads 4 and KV heads 2");
  expect_says(message, "tp 4");
}

TEST(LiveFailures, WidthsThatAreLessThanTp) {
  ModelSpec model = live_model();
  model.llm.ffn = 1;
  const std::string message = refusal_of(uniform_plan(2, 1, 1, 2), model);
  expect_says(message, "llm.layers.0.up: 1 cannot be split over tp 2");
}

// Only models with an architecture support the sum of tied embeddings over pipeline ranks.
TEST(LiveFailures, TiedEmbeddingsOnSeveralRanks) {
  ModelSpec model = live_model();
  model.llm.tied_embeddings = true;
  expect_says(refusal_of(uniform_plan(1, 2, 1, 2), model), "tied embeddings");
}

/// The features of the first encoder's layers widen the rows that are sent; the second encoder has none.
TEST(LiveFailures, DeepFeaturesNextToASecondEncoder) {
  ModelSpec model = testing::hearing_model();
  model.architecture.emplace().deepstack = {0, 1};
  expect_says(refusal_of(uniform_plan(1, 1, 1, 2), model),
              "expected no deep features (deepstack) in a model with a second encoder, found 2");
}

TEST(LiveFailures, ConnectorsThatDoNotConnect) {
  const Plan plan = uniform_plan(1, 1, 1, 2);
  ModelSpec model = live_model();
  for (const std::vector<int>& none : {std::vector<int>{}, std::vector<int>{16}}) {
    model.connector.widths = none;
    expect_says(refusal_of(plan, model), "expected a connector");
  }
  model.connector.widths = {32, 20, 24};
  expect_says(refusal_of(plan, model), "first width 16, which is 1 x the encoder's, found 32");
  model.connector.widths = {16, 20, 16};
  expect_says(refusal_of(plan, model), "last width 24, which is the LLM's, found 16");
}

TEST(LiveFailures, HeadsThatCannotBeComputed) {
  ModelSpec model = live_model();
  model.llm.head_dim = 5;
  expect_says(refusal_of(uniform_plan(1, 1, 1, 2), model), "LLM: expected an even head_dim");
  model = live_model();
  model.llm.kv_heads = 3;
  expect_says(refusal_of(uniform_plan(1, 1, 1, 2), model), "KV heads that divide its 4 heads, found 3");
  model = live_model();
  model.llm.vocabulary = 0;
  expect_says(refusal_of(uniform_plan(1, 1, 1, 2), model), "vocabulary");
}

TEST(LiveFailures, SamplesWithMissingSequencesAreRejected) {
  LiveRun run(uniform_plan(1, 1, 1, 1), live_samples(2, 5), DType::f32);
  run.samples[1].encoder_sequences.clear();
  expect_says(refusal([&] { run.step(true); }), "sample 's1'");
}

TEST(LiveFailures, TokensThatCannotBeMerged) {
  ModelSpec model = live_model();
  model.connector.merge = 4;
  model.connector.widths = {64, 20, 24};
  expect_says(refusal([&] { run_of(uniform_plan(1, 1, 2, 2), model).step(true); }),
              "6 encoder tokens cannot be merged by 4");
}

}  // namespace failures_test
}  // namespace dflop
