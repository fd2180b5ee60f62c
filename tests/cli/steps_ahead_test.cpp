// If devices run asynchronously, a step is prepared while the previous one runs. The result is the same, and
// a failure in preparation fails the prepared step only.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>

#include "experiments/training/loop.hpp"
#include "tests/backend/content/host_process.hpp"
#include "tests/backend/forwarding.hpp"
#include "tests/cli/tiny_training.hpp"

namespace dflop {
namespace steps_ahead_test {

using testing::CountedDataset;
using testing::DamagedDataset;
using testing::HostProcess;

constexpr int kSteps = 3;
constexpr std::chrono::seconds kPatience{30};
const std::string kNoPicture = "bad.tar: not a picture";

/// A host device that claims to run asynchronously.
class BesideDevice final : public testing::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  bool is_synchronous() const override { return false; }
};

class BesideWorld final : public World {
 public:
  explicit BesideWorld(int ranks) : host_(ranks) {}
  std::string device_name() const override { return host_.device_name(); }
  int ranks() const override { return host_.ranks(); }
  std::unique_ptr<Device> make_device(int rank) override {
    return std::make_unique<BesideDevice>(host_.make_device(rank));
  }
  std::unique_ptr<Communicator> make_communicator(int rank) override { return host_.make_communicator(rank); }

 private:
  HostWorld host_;
};

/// Synthetic contents that record for which samples pictures are requested, and fail for one sample.
class WatchedContents final : public Contents {
 public:
  WatchedContents(const ModelSpec& model, std::string damaged)
      : made_up_(model, 1, DType::f64), damaged_(std::move(damaged)) {}

  std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                 bool values) const override {
    const std::scoped_lock lock(mutex_);
    if (values && sample.id == damaged_) throw Error(ErrorKind::input, kNoPicture);
    if (values) asked_.insert(sample.id);
    changed_.notify_all();
    return made_up_.encoder(sample, sequence, values);
  }
  std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const override {
    return made_up_.tokens(sample);
  }
  std::int64_t trained_tokens(const Sample& sample) const override { return made_up_.trained_tokens(sample); }

  /// Returns whether pictures of all these samples have been requested, waiting up to `within`.
  bool are_asked_for(const Batch& batch, std::chrono::seconds within) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, within, [&] {
      return std::all_of(batch.begin(), batch.end(), [&](const Sample& s) { return asked_.contains(s.id); });
    });
  }

 private:
  MadeUpContents made_up_;
  std::string damaged_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::set<std::string> asked_;
};

/// The result of a run in one process.
struct Outcome {
  std::vector<double> losses;
  std::string error;
  bool failed_between_steps = false;
};

struct StepsAheadTest : testing::TinyTraining {
  StepsAheadTest() : TinyTraining(1) {}

  SchedulerChoice scheduler{"lpt"};
  std::function<bool(const TrainingStep&)> on_step = [](const TrainingStep&) { return true; };

  BatchStream batches() const { return BatchStream(samples, plan.gbs, 1); }
  Batch batch_of(int step) const {
    BatchStream stream = batches();
    stream.skip(step - 1);
    return stream.next();
  }

  /// Trains with its own contents or, if there is a loader, with the loader's.
  Outcome train(World& world, std::shared_ptr<const Contents> contents,
                ContentLoader* loader = nullptr) const {
    LiveExecutor executor(plan, target->model, world, {DType::f64, 1, std::move(contents)});
    TrainingOptions options;
    options.last_step = kSteps;
    options.loader = loader;
    TrainingLoop training(plan, target, batches(), scheduler, world, executor, options);
    Outcome outcome;
    try {
      training.run([&](const TrainingStep& step, Timeline&&) {
        outcome.losses.push_back(step.loss);
        return on_step(step);
      });
    } catch (const Error& error) {
      outcome.error = error.what();
    }
    outcome.failed_between_steps = training.failed_between_steps();
    return outcome;
  }
  Outcome train_loaded(World& world, const std::shared_ptr<const Dataset>& data) const {
    const auto loader = std::make_shared<ContentLoader>(data, 2, DType::f64);
    return train(world, loader, loader.get());
  }
};

TEST_F(StepsAheadTest, ChangeNoLoss) {
  HostWorld host(plan.ranks());
  const std::vector<double> expected = train(host, nullptr).losses;
  ASSERT_EQ(expected.size(), std::size_t{kSteps});
  BesideWorld made_up(plan.ranks());
  EXPECT_EQ(train(made_up, nullptr).losses, expected);
  BesideWorld loaded(plan.ranks());
  const auto data = std::make_shared<CountedDataset>(target->model, *samples, 1);
  EXPECT_EQ(train_loaded(loaded, data).losses, expected);
  EXPECT_EQ(data->decoded().size(), static_cast<std::size_t>(kSteps * plan.gbs));
}

/// At its end, each step waits here until the pictures of the next one have been requested.
TEST_F(StepsAheadTest, ArePreparedBeforeTheirStep) {
  BesideWorld world(plan.ranks());
  const auto contents = std::make_shared<WatchedContents>(target->model, "none");
  on_step = [&](const TrainingStep& done) {
    if (done.step < kSteps) {
      EXPECT_TRUE(contents->are_asked_for(batch_of(done.step + 1), kPatience));
    }
    return true;
  };
  EXPECT_EQ(train(world, contents).losses.size(), std::size_t{kSteps});
}

/// On the host, preparation would use the step's time, and a scheduler with a time limit may take until the
/// step begins.
TEST_F(StepsAheadTest, ArePreparedLateOnTheHostAndWithATimeLimit) {
  for (const bool host : {true, false}) {
    SCOPED_TRACE(host ? "host" : "time limit");
    if (!host) scheduler.limits.time_limit = Seconds(0.01);
    const auto contents = std::make_shared<WatchedContents>(target->model, "none");
    on_step = [&](const TrainingStep& done) {
      if (done.step < kSteps) {
        EXPECT_FALSE(contents->are_asked_for(batch_of(done.step + 1), std::chrono::seconds(0)));
      }
      return true;
    };
    HostWorld on_host(plan.ranks());
    BesideWorld beside(plan.ranks());
    EXPECT_EQ(train(host ? static_cast<World&>(on_host) : beside, contents).losses.size(),
              std::size_t{kSteps});
  }
}

/// A sample of the second step cannot be read. The first step is complete, and its state is intact.
TEST_F(StepsAheadTest, FailAtTheirStep) {
  const std::string damaged = batch_of(2).front().id;
  const auto expect_second = [&](const Outcome& outcome) {
    EXPECT_EQ(outcome.losses.size(), 1U);
    EXPECT_EQ(outcome.error, kNoPicture);
    EXPECT_TRUE(outcome.failed_between_steps);
  };
  BesideWorld made(plan.ranks());
  expect_second(train(made, std::make_shared<WatchedContents>(target->model, damaged)));
  const auto data = std::make_shared<DamagedDataset>(target->model, *samples, damaged);
  BesideWorld loaded(plan.ranks());
  expect_second(train_loaded(loaded, data));
  HostWorld host(plan.ranks());
  expect_second(train_loaded(host, data));
}

TEST_F(StepsAheadTest, EndWithTheLoop) {
  BesideWorld world(plan.ranks());
  on_step = [](const TrainingStep&) { return false; };
  EXPECT_EQ(train(world, nullptr).losses.size(), 1U);
}

/// The time from step to step is the step's time plus the pause before it.
TEST_F(StepsAheadTest, AreTimedFromEndToEnd) {
  constexpr std::chrono::milliseconds kPause{50};
  HostWorld world(plan.ranks());
  on_step = [&](const TrainingStep& done) {
    EXPECT_EQ(done.step_to_step.has_value(), done.step > 1);
    if (done.step_to_step) {
      EXPECT_GE(done.between_steps()->count(), Seconds(kPause).count());
      EXPECT_DOUBLE_EQ(done.step_to_step->count(), done.time.count() + done.between_steps()->count());
    }
    std::this_thread::sleep_for(kPause);
    return true;
  };
  train(world, nullptr);
}

/// Ranks in separate processes take their schedules together and prepare steps independently. This holds for
/// synthetic and loaded contents, even if one process cannot read a sample.
TEST_F(StepsAheadTest, WorkInSeveralProcesses) {
  HostWorld host(plan.ranks());
  const std::vector<double> expected = train(host, nullptr).losses;
  const std::string damaged = batch_of(2).front().id;
  const auto whole = std::make_shared<CountedDataset>(target->model, *samples, 1);
  const auto with_damage = std::make_shared<DamagedDataset>(target->model, *samples, damaged);
  const std::vector<std::shared_ptr<const Dataset>> all{nullptr, whole, with_damage};
  for (const auto& data : all) {
    BesideWorld shared(plan.ranks());
    std::mutex mutex;
    std::vector<Outcome> outcomes;
    const auto messages = testing::run_processes_on(shared, [&](HostProcess& process) {
      Outcome outcome = data ? train_loaded(process, data) : train(process, nullptr);
      if (process.leads() && data != with_damage) {
        EXPECT_EQ(outcome.losses, expected);
      }
      const std::scoped_lock lock(mutex);
      outcomes.push_back(std::move(outcome));
    });
    for (const std::string& message : messages) EXPECT_EQ(message, "");
    ASSERT_EQ(outcomes.size(), static_cast<std::size_t>(plan.ranks()));
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.error, data == with_damage ? kNoPicture : "");
      EXPECT_EQ(outcome.losses.size(), data == with_damage ? 1U : std::size_t{kSteps});
      EXPECT_EQ(outcome.failed_between_steps, data == with_damage);
    }
  }
}

}  // namespace steps_ahead_test
}  // namespace dflop
