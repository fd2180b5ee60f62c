// Each process of a run loads only the samples of its own ranks.
#include <gtest/gtest.h>

#include "experiments/training/held_out.hpp"
#include "experiments/training/loop.hpp"
#include "tests/backend/content/host_process.hpp"
#include "tests/cli/tiny_training.hpp"

namespace dflop {
namespace data_of_processes_test {

using testing::CountedDataset;
using testing::HostProcess;

constexpr int kSteps = 3;

struct DataOfProcesses : testing::TinyTraining {
  DataOfProcesses() : TinyTraining(2) {}

  /// Trains and returns the losses in the leading process.
  std::vector<double> train(World& world, const std::shared_ptr<const Dataset>& data) const {
    const auto loader = std::make_shared<ContentLoader>(data, 2);
    LiveExecutor executor(plan, target->model, world, {DType::f64, 1, loader});
    TrainingOptions options;
    options.last_step = kSteps;
    options.loader = loader.get();
    TrainingLoop training(plan, target, BatchStream(samples, plan.gbs, 1), {"lpt"}, world, executor, options);
    std::vector<double> losses;
    training.run([&](const TrainingStep& step, Timeline&&) {
      losses.push_back(step.loss);
      return true;
    });
    return losses;
  }
};

/// Each sample of the three batches is on one of two dp ranks, and that dp rank's two pipeline ranks read it.
/// Only the first of them, which encodes the sample, decodes it. Losses equal one process's.
TEST_F(DataOfProcesses, HasOnlyTheSamplesOfTheirRanks) {
  const auto all = std::make_shared<CountedDataset>(target->model, *samples, 1);
  HostWorld world(plan.ranks());
  const std::vector<double> expected = train(world, all);
  ASSERT_EQ(expected.size(), std::size_t{kSteps});
  EXPECT_EQ(all->decoded().size(), std::size_t{kSteps * 8});

  std::mutex mutex;
  std::multiset<std::string> decoded;
  std::vector<std::size_t> read;
  const auto messages = testing::run_host_processes(plan.ranks(), {}, [&](HostProcess& process) {
    const auto own = std::make_shared<CountedDataset>(target->model, *samples, 1);
    const std::vector<double> losses = train(process, own);
    if (process.leads()) {
      for (std::size_t step = 0; step < losses.size(); ++step)
        EXPECT_NEAR(losses[step], expected[step], 1e-12 * expected[step]);
    }
    const std::scoped_lock lock(mutex);
    decoded.merge(own->decoded());
    read.push_back(own->decoded().size() + own->shapes().size());
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
  EXPECT_EQ(decoded, all->decoded());
  std::size_t sum = 0;
  for (const std::size_t count : read) {
    EXPECT_LT(count, std::size_t{kSteps * 8});
    sum += count;
  }
  EXPECT_EQ(sum, std::size_t{kSteps * 8 * 2});
}

/// Only the ranks of one dp rank decode the damaged sample. All processes learn of it, and the step counts.
TEST_F(DataOfProcesses, DamagedHeldOutSamplesCostNoStep) {
  TrainJob job;
  job.plan = plan;
  job.target = target;
  job.samples = samples;
  job.steps = 1;
  job.seed = 1;
  std::mutex mutex;
  std::multiset<std::int64_t> steps;
  const auto messages = testing::run_host_processes(plan.ranks(), {}, [&](HostProcess& process) {
    HeldOutData data;
    data.samples = samples;
    data.batches = 1;
    data.shards =
        std::make_shared<const testing::DamagedDataset>(target->model, *samples, samples->front().id);
    HeldOutEvaluation held_out(std::move(data), job, {"lpt"}, process, 1, DType::f64);
    LiveExecutor executor(plan, target->model, process, {DType::f64, 1});
    TrainingOptions options;
    options.held_out = &held_out;
    TrainingLoop training(plan, target, job.batches(), {"lpt"}, process, executor, options);
    training.run([&](const TrainingStep& step, Timeline&&) {
      const std::scoped_lock lock(mutex);
      steps.insert(step.step);
      return true;
    });
  });
  EXPECT_EQ(steps.count(1), static_cast<std::size_t>(plan.ranks()));
  for (const std::string& message : messages) EXPECT_EQ(message, "bad.tar: not a picture");
}

}  // namespace data_of_processes_test
}  // namespace dflop
