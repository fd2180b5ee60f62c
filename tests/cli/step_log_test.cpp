#include "experiments/training/step_log.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace dflop {
namespace step_log_test {

using nlohmann::json;

TrainingStep full_step() {
  TrainingStep step;
  step.step = 7;
  step.loss = 2.5;
  step.gradient_norm = 3;
  step.eval_loss = 2.75;
  step.eval_time = Seconds(6);
  step.learning_rate = 0.125;
  step.time = Seconds(4);
  step.step_to_step = Seconds(4.5);
  step.predicted = Seconds(5);
  step.samples = 16;
  step.encoder_tokens = 300;
  step.llm_tokens = 2000;
  step.mfu = 0.375;
  step.idle_fraction = 0.25;
  step.peak_memory = Bytes{4096};
  step.waited = Seconds(0.5);
  step.data_waited = Seconds(0.75);
  return step;
}

/// 2000 tokens in 4 s are 500 per second. The step ends 4.5 s after the previous one, so 0.5 s lie between
/// the two. The other figures are as given.
TEST(StepLog, LineHasAllFigures) {
  const json expected = {{"step", 7},
                         {"loss", 2.5},
                         {"gradient_norm", 3},
                         {"eval_loss", 2.75},
                         {"eval_s", 6},
                         {"learning_rate", 0.125},
                         {"iteration_s", 4},
                         {"step_to_step_s", 4.5},
                         {"between_steps_s", 0.5},
                         {"predicted_s", 5},
                         {"samples", 16},
                         {"encoder_tokens", 300},
                         {"llm_tokens", 2000},
                         {"llm_tokens_per_s", 500},
                         {"mfu", 0.375},
                         {"idle_fraction", 0.25},
                         {"data_wait_s", 0.75},
                         {"peak_memory_bytes", 4096},
                         {"schedule_wait_s", 0.5}};
  EXPECT_EQ(json::parse(step_line(full_step())), expected);
}

TEST(StepLog, UnknownAndNotFiniteFiguresAreNull) {
  TrainingStep step = full_step();
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.mfu.reset();
  step.predicted.reset();
  step.step_to_step.reset();
  const json line = json::parse(step_line(step));
  for (const char* key : {"loss", "mfu", "predicted_s", "step_to_step_s", "between_steps_s"})
    EXPECT_TRUE(line.at(key).is_null()) << key;
  EXPECT_EQ(line.size(), 19U);
}

/// A step has its number and 18 figures. An unknown figure produces no point, but a non-finite one does.
TEST(StepLog, CurvesHaveKnownValues) {
  TrainingStep step = full_step();
  EXPECT_EQ(step_scalars(step).size(), 18U);
  step.mfu.reset();
  step.loss = std::numeric_limits<double>::infinity();
  const std::vector<Scalar> scalars = step_scalars(step);
  ASSERT_EQ(scalars.size(), 17U);
  EXPECT_EQ(scalars[0].tag, "train/loss");
  EXPECT_EQ(scalars[0].value, step.loss);
}

}  // namespace step_log_test
}  // namespace dflop
