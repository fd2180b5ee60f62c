// Live runs whose ranks are processes: here threads with a World each, which share nothing but a rendezvous
// and an NCCL that is made up. Loss, gradients, parameters and timelines are those of one process.
#include <gtest/gtest.h>

#include "backend/run/messages.hpp"
#include "tests/backend/nccl/fake_process.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop::testing {
namespace live_test {

void expect_same(const WholeTensors& found, const WholeTensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(found.count(name), 1u) << name;
    EXPECT_LT(distance(found.at(name), tensor), 1e-10) << name;
  }
}

/// Two steps of the same plan in one process and in one for each rank. Between them all weights are read,
/// halved and written.
TEST(NcclLive, ProcessesTrainAsOne) {
  Plan shards = disaggregated_plan({2, 1, 1, {}}, {2, 2, 1, {}}, 2);
  shards.sequence_parallel = true;
  for (const Plan& plan : {uniform_plan(1, 2, 2, 3), uniform_plan(2, 2, 1, 2),
                           disaggregated_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 3), shards}) {
    SCOPED_TRACE(describe(plan));
    Plan zero1 = plan;
    zero1.zero1 = true;
    const std::vector<Sample> samples = live_samples(12, 5);
    LiveRun one(zero1, samples, DType::f64);
    const auto halve = [](LiveExecutor& executor) {
      WholeTensors weights = executor.read(ParameterStore::Kind::weight);
      for (auto& [name, tensor] : weights) {
        for (double& value : tensor.values) value /= 2;
      }
      executor.write(ParameterStore::Kind::weight, weights);
    };
    one.step(true);
    halve(*one.executor);
    const LiveResult expected = one.step(true, 2);
    const auto gradients = one.executor->read(ParameterStore::Kind::gradient);
    const auto weights = one.executor->read(ParameterStore::Kind::weight);
    const auto moments = one.executor->read(ParameterStore::Kind::moment1);

    const auto messages = run_processes(one.program.ranks(), [&](FakeProcess& process) {
      LiveExecutor executor(one.plan, one.model, process, {DType::f64, 7});
      StepOptions options;
      options.optimizer.step = 1;
      executor.step(one.iteration(), options);
      halve(executor);
      options.optimizer.step = 2;
      const LiveResult result = executor.step(one.iteration(), options);
      const auto found_gradients = executor.read(ParameterStore::Kind::gradient);
      const auto found_weights = executor.read(ParameterStore::Kind::weight);
      const auto found_moments = executor.read(ParameterStore::Kind::moment1);
      if (!process.leads()) {
        EXPECT_TRUE(result.timeline.spans.empty());
        EXPECT_TRUE(found_weights.empty());
        return;
      }
      EXPECT_NEAR(result.loss, expected.loss, 1e-10);
      EXPECT_EQ(result.timeline.spans.size(), expected.timeline.spans.size());
      EXPECT_EQ(result.timeline.groups.size(), expected.timeline.groups.size());
      EXPECT_GT(result.timeline.makespan, Nanoseconds{0});
      expect_same(found_gradients, gradients);
      expect_same(found_weights, weights);
      expect_same(found_moments, moments);
    });
    for (const std::string& message : messages) EXPECT_EQ(message, "");
  }
}

TEST(NcclLive, AFailureOfOneProcessIsToldToAll) {
  const std::vector<Sample> samples = live_samples(12, 5);
  const LiveRun one(uniform_plan(1, 2, 1, 3), samples, DType::f64);
  const auto messages = run_processes(2, [&](FakeProcess& process) {
    LiveExecutor executor(one.plan, one.model, process, {DType::f64, 7});
    if (process.leads()) {
      process.abort("the disk is full");
      return;
    }
    executor.read(ParameterStore::Kind::weight);
    executor.write(ParameterStore::Kind::weight, {});
  });
  EXPECT_EQ(messages[1], "rank 0 ended the run: the disk is full");
}

TEST(ProcessWorld, ProcessesAgreeOrSayWhatDiffers) {
  for (const bool same : {true, false}) {
    const auto messages = run_processes(3, [&](FakeProcess& process) {
      const bool other = !same && process.local_ranks().front() == 2;
      require_agreement(process, {{"model", "tiny"}, {"plan", other ? "pp 2" : "pp 4"}});
    });
    for (const std::string& message : messages) {
      EXPECT_EQ(message,
                same ? "" : "the ranks of a run need the same plan: rank 0 has 'pp 4', rank 2 has 'pp 2'");
    }
  }
}

/// Every receive that a rank makes has a route: of a group of 2 that sends to one of 3, 0 and 2 hear from the
/// first sender and 1 from the second; the other way each hears from the rank of its place.
TEST(Routes, EachReceiverHearsOneSender) {
  EXPECT_EQ(receivers_of(0, 2, 3), (std::vector<int>{0, 2}));
  EXPECT_EQ(receivers_of(1, 2, 3), (std::vector<int>{1}));
  EXPECT_EQ(receivers_of(0, 3, 2), (std::vector<int>{0}));
  EXPECT_EQ(receivers_of(2, 3, 2), (std::vector<int>{}));
  Program program;
  program.groups.resize(2);
  program.groups[0].ranks = 2;
  program.groups[1].first_rank = 2;
  program.groups[1].ranks = 3;
  program.messages.resize(3);
  program.messages[0].source = program.messages[1].source = 0;
  program.messages[0].destination = program.messages[1].destination = 1;
  program.messages[2].source = 1;
  program.messages[2].destination = 0;
  EXPECT_EQ(routes_of(program), (std::vector<RankRoute>{{0, 2}, {0, 4}, {1, 3}, {2, 0}, {3, 1}}));
}

}  // namespace live_test
}  // namespace dflop::testing
