// Live plans whose encoder and LLM share devices: results do not depend on the shares.
#include <gtest/gtest.h>

#include "backend/host/world.hpp"
#include "core/error.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace shared_test {

using testing::live_samples;
using testing::LiveRun;
using testing::shared_plan;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;

constexpr ModulePlan kOne{1, 1, 1, {}};

/// Returns a run of a plan on devices with `device_cores` cores.
LiveRun run_on(const Plan& plan, int device_cores) {
  return {plan, live_samples(12, 5), DType::f32, [&](int ranks) {
            WorldOptions options{Seconds(60)};
            options.device_cores = device_cores;
            if (plan.layout == Layout::shared) options.shared_devices = plan.gpus();
            options.first_share = plan.encoder_share;
            return std::make_unique<HostWorld>(ranks, options);
          }};
}

/// Returns losses of three steps, and all weights and gradients after them.
std::pair<std::vector<double>, std::vector<WholeTensors>> result_of(LiveRun run) {
  std::vector<double> losses;
  for (int step = 1; step <= 3; ++step) losses.push_back(run.step(true, step).loss);
  return {losses, {run.executor->read(Kind::gradient), run.executor->read(Kind::weight)}};
}

void expect_same_bits(const Plan& plan, int cores, const Plan& other, int other_cores) {
  const auto expected = result_of(run_on(plan, cores));
  const auto found = result_of(run_on(other, other_cores));
  EXPECT_EQ(found.first, expected.first);
  for (std::size_t kind = 0; kind < expected.second.size(); ++kind) {
    for (const auto& [name, tensor] : expected.second[kind]) {
      EXPECT_EQ(found.second[kind].at(name).values, tensor.values) << name;
    }
  }
}

/// Kernels use the same chunks with one, two or three cores, also with more threads than processors.
TEST(LiveSharedPlans, AreBitIdenticalForAnyShare) {
  const Plan half = shared_plan(kOne, kOne, 0.5, 3);
  for (const double share : {0.01, 0.25, 0.75, 0.99}) {
    SCOPED_TRACE(share);
    expect_same_bits(half, 4, shared_plan(kOne, kOne, share, 3), 4);
  }
  expect_same_bits(half, 4, half, 2);
}

/// The placement of ranks does not matter either: the same ranks on one device each give the same results.
TEST(LiveSharedPlans, AreBitIdenticalToDisaggregatedPlans) {
  const Plan shared = shared_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 0.5, 3);
  const Plan apart = testing::disaggregated_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 3);
  expect_same_bits(shared, 4, apart, 2);
}

/// The same for all plans, with teams of any size.
TEST(LiveTeams, DoNotChangeBits) {
  const Plan plan = uniform_plan(1, 1, 2, 2);
  expect_same_bits(plan, 2, plan, 3);
}

std::string refusal(const Plan& plan, const WorldOptions& options) {
  const ModelSpec model = testing::live_model();
  HostWorld world(plan.ranks(), options);
  try {
    LiveExecutor(plan, model, world, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.message();
  }
  return "";
}

TEST(LiveSharedPlans, NeedAWorldThatSupportsThem) {
  const Plan shared = shared_plan(kOne, kOne, 0.5, 3);
  EXPECT_NE(refusal(shared, {}).find("but the ranks of host have one device each"), std::string::npos);
  WorldOptions options;
  options.device_cores = 2;
  options.shared_devices = 1;
  options.first_share = 0.5;
  EXPECT_EQ(refusal(shared, options), "");
  EXPECT_NE(refusal(testing::disaggregated_plan(kOne, kOne, 3), options)
                .find("expected a shared plan on 1 devices of host, found a disaggregated plan on 2"),
            std::string::npos);
}

/// A timeline records that ranks share devices. Its simulation needs this.
TEST(LiveSharedPlans, AreMarkedInTimelines) {
  LiveRun run = run_on(shared_plan(kOne, kOne, 0.25, 3), 4);
  const Timeline timeline = run.step(true).timeline;
  EXPECT_EQ(timeline.shared_gpus, 1);
  EXPECT_EQ(timeline.cores, 0);
  ASSERT_EQ(timeline.stage_shapes.size(), 2U);
  EXPECT_EQ(timeline.stage_shapes[0].share, 0.25);
  EXPECT_EQ(timeline.stage_shapes[1].share, 0.75);
}

}  // namespace shared_test
}  // namespace dflop
