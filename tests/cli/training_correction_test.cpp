// Correction in a training loop, with the simulator in place of hardware.
#include "experiments/training/correction.hpp"

#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "experiments/checks/paper/correction_study.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "sim/engine.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace training_correction_test {

Plan two_llm_ranks(const ModelSpec& model) {
  Plan plan;
  plan.model = "tiny-vlm";
  plan.cluster = "a100-80g-vtrain:1";
  plan.gbs = 48;
  plan.encoder = {1, 1, 1, {model.encoder.layers}};
  plan.llm = {1, 1, 2, {model.llm.layers}};
  plan.microbatches = 4;
  plan.recomputation = Recomputation::none;
  return plan;
}

std::vector<Sample> real_samples() {
  PreprocessOptions options;
  options.rule = "tiny-vlm";
  return load_samples(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv", options, false);
}

/// Runs steps on hardware that is slower for some shapes than its cost model predicts.
struct SlowRun {
  std::shared_ptr<const Target> target = std::make_shared<const Target>("tiny-vlm", "a100-80g-vtrain:1");
  Plan plan = two_llm_ranks(target->model);
  std::vector<Batch> batches = make_batches(real_samples(), plan.gbs, 60, 3);
  std::shared_ptr<const CostModel> base{target, &target->cost};
  AnomalousCostModel hardware{*base, plan, target->model, all_samples(), {.fraction = 0.05, .latency = 1}, 3};
  SchedulerChoice scheduler{"lpt"};

  Batch all_samples() const {
    Batch all;
    for (const Batch& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
    return all;
  }

  ScheduledBatch schedule(std::size_t k, const CostModel& cost) const {
    const ScheduleRequest request{batches[k], plan, target->model, cost, 3, k};
    return {k, std::make_shared<Batch>(batches[k]), make_scheduler(scheduler.name)->schedule(request), {}};
  }

  Iteration iteration(const ScheduledBatch& batch) const {
    return make_iteration({target->model, target->cluster, *base}, plan, *batch.samples,
                          batch.result.assignment);
  }

  Timeline run(const Iteration& iteration) const {
    return SimExecutor().run(iteration, hardware, Detail::spans);
  }
};

/// Returns the total seconds of steps [begin, end).
double total(const std::vector<double>& seconds, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t k = begin; k < end; ++k) sum += seconds[k];
  return sum;
}

TEST(TrainingCorrection, LearnsSlowShapesAndSchedulesWithThem) {
  const SlowRun run;
  TrainingCorrection correction(run.base, run.plan, run.target, run.scheduler, 3, std::nullopt);
  std::vector<double> corrected;
  std::vector<double> plain;
  double last_error = 0;
  for (std::size_t k = 0; k < run.batches.size(); ++k) {
    const ScheduledBatch batch = run.schedule(k, *correction.current());
    const Iteration iteration = run.iteration(batch);
    correction.begin_step(batch, iteration);
    const Timeline timeline = run.run(iteration);
    correction.end_step(batch, timeline);
    EXPECT_TRUE(correction.tracked());
    corrected.push_back(Seconds(timeline.makespan).count());
    last_error = correction.predicted() / Seconds(timeline.makespan) - 1;
    const ScheduledBatch same = run.schedule(k, *run.base);
    plain.push_back(Seconds(run.run(run.iteration(same)).makespan).count());
  }
  // The hardware has no noise, so predictions come close to it once the slow shapes have been seen, and the
  // learned correction pays off.
  EXPECT_NEAR(last_error, 0, 0.05);
  EXPECT_LT(total(corrected, 30, 60), 0.98 * total(plain, 30, 60));
}

TEST(TrainingCorrection, SwitchesOffIfNothingIsSlow) {
  SlowRun run;
  TrainingCorrection correction(run.base, run.plan, run.target, run.scheduler, 3, SwitchRule::published);
  bool rested = false;
  for (std::size_t k = 0; k < run.batches.size(); ++k) {
    const ScheduledBatch batch = run.schedule(k, *correction.current());
    const Iteration iteration = run.iteration(batch);
    correction.begin_step(batch, iteration);
    const Timeline timeline = SimExecutor().run(iteration, Detail::spans);
    correction.end_step(batch, timeline);
    rested = rested || !correction.tracked();
  }
  EXPECT_TRUE(rested);
  EXPECT_TRUE(correction.state().rests());
  EXPECT_TRUE(correction.state().learned().fits().empty());
}

TEST(TrainingCorrection, EarlierModelsDoNotChange) {
  const SlowRun run;
  TrainingCorrection correction(run.base, run.plan, run.target, run.scheduler, 3, std::nullopt);
  const std::shared_ptr<const CostModel> first = correction.current();
  const Stage stage = plan_stages(run.plan, run.target->model).back();
  const Sample& sample = run.batches[0][0];
  const Seconds before = first->sample_excess(Op::forward, stage, sample);
  for (std::size_t k = 0; k < 3; ++k) {
    const ScheduledBatch batch = run.schedule(k, *correction.current());
    const Iteration iteration = run.iteration(batch);
    correction.begin_step(batch, iteration);
    correction.end_step(batch, run.run(iteration));
  }
  EXPECT_NE(correction.current(), first);
  EXPECT_EQ(first->sample_excess(Op::forward, stage, sample), before);
}

}  // namespace training_correction_test
}  // namespace dflop
