// Live runs on one GPU have the same loss, gradients and steps as on the host.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "backend/cuda/world.hpp"
#include "backend/profile/profiler.hpp"
#include "tests/backend/run/live_model.hpp"
#include "traces/files/specs.hpp"

namespace dflop {
namespace live_cuda_test {

using testing::disaggregated_plan;
using testing::live_samples;
using testing::LiveRun;
using testing::shared_plan;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;

std::unique_ptr<World> gpu(int ranks) {
  return make_cuda_world(ranks);
}

struct NamedPlan {
  std::string name;
  Plan plan;
};

std::ostream& operator<<(std::ostream& out, const NamedPlan& plan) {
  return out << plan.name;
}

std::vector<NamedPlan> plans() {
  Plan full = disaggregated_plan({1, 1, 1, {}}, {1, 2, 1, {}}, 4);
  full.recomputation = Recomputation::full;
  Plan zero_bubble = disaggregated_plan({1, 1, 1, {}}, {1, 2, 1, {}}, 4);
  zero_bubble.order = OrderKind::zb_h1;
  Plan shards = disaggregated_plan({2, 1, 1, {}}, {2, 2, 1, {}}, 2);
  shards.sequence_parallel = true;
  return {{"one_rank", uniform_plan(1, 1, 1, 1)},
          {"dp2", uniform_plan(1, 1, 2, 2)},
          {"tp2", uniform_plan(2, 1, 1, 2)},
          {"tp2_pp2_dp2", uniform_plan(2, 2, 2, 3)},
          {"encoder_and_llm_apart", disaggregated_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 3)},
          {"encoder_dp3_llm_dp2", disaggregated_plan({1, 1, 3, {}}, {1, 1, 2, {}}, 3)},
          {"full_recomputation", full},
          {"zb_h1", zero_bubble},
          {"sequence_parallel", shards}};
}

class LiveCuda : public ::testing::TestWithParam<NamedPlan> {};

TEST_P(LiveCuda, LossAndGradientsEqualTheHost) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun reference(uniform_plan(1, 1, 1, 1), samples, DType::f32);
  LiveRun run(GetParam().plan, samples, DType::f32, gpu);
  const double loss = reference.step(false).loss;
  EXPECT_NEAR(run.step(false).loss, loss, 1e-5 * loss);
  const WholeTensors found = run.executor->read(Kind::gradient);
  for (const auto& [name, tensor] : reference.executor->read(Kind::gradient)) {
    ASSERT_EQ(found.count(name), 1U) << name;
    EXPECT_LT(testing::distance(found.at(name), tensor), 5e-5) << name;
  }
}

TEST_P(LiveCuda, StepsEqualTheHost) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun reference(GetParam().plan, samples, DType::f32);
  LiveRun run(GetParam().plan, samples, DType::f32, gpu);
  for (int step = 1; step <= 4; ++step) {
    const double loss = reference.step(true, step).loss;
    EXPECT_NEAR(run.step(true, step).loss, loss, 1e-3 * loss) << "step " << step;
  }
}

TEST_P(LiveCuda, RunsRepeatToTheBit) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun first(GetParam().plan, samples, DType::f32, gpu);
  LiveRun second(GetParam().plan, samples, DType::f32, gpu);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(first.step(true, step).loss, second.step(true, step).loss) << "step " << step;
  }
  const WholeTensors expected = first.executor->read(Kind::weight);
  for (const auto& [name, tensor] : second.executor->read(Kind::weight)) {
    EXPECT_TRUE(tensor.values == expected.at(name).values) << name;
  }
}

/// The same test as on the host (tests/backend/run/bf16_test.cpp).
TEST_P(LiveCuda, Bf16EqualsF32ExceptForRounding) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun reference(uniform_plan(1, 1, 1, 1), samples, DType::f32);
  LiveRun run(GetParam().plan, samples, DType::bf16, gpu);
  const double loss = reference.step(false).loss;
  EXPECT_NEAR(run.step(false).loss, loss, 0.01 * loss);
  const WholeTensors found = run.executor->read(Kind::gradient);
  for (const auto& [name, tensor] : reference.executor->read(Kind::gradient)) {
    EXPECT_LT(testing::distance(found.at(name), tensor), 0.15) << name;
  }
  const double first = run.step(true, 1).loss;
  for (int step = 2; step <= 5; ++step) run.step(true, step);
  EXPECT_LT(run.step(false).loss, first);
}

/// Spans of a group do not overlap, and messages arrive after they were sent.
TEST_P(LiveCuda, TimelinesAreInOrder) {
  LiveRun run(GetParam().plan, live_samples(12, 5), DType::f32, gpu);
  run.step(true, 1);
  const Timeline timeline = run.step(true, 2).timeline;
  EXPECT_EQ(timeline.source, run.world->device_name());
  EXPECT_GT(timeline.makespan, Nanoseconds(0));
  for (const Span& span : timeline.spans) {
    EXPECT_GE(span.start, Nanoseconds(0));
    EXPECT_GE(span.duration, Nanoseconds(0));
    EXPECT_LE(span.start + span.duration, timeline.makespan);
  }
  for (const GroupUsage& usage : timeline.groups) {
    EXPECT_GT(usage.busy, Nanoseconds(0));
    EXPECT_GE(usage.bubble, Nanoseconds(0));
    EXPECT_GT(usage.peak_memory, usage.model_state.total());
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, LiveCuda, ::testing::ValuesIn(plans()),
                         [](const auto& param) { return param.param.name; });

/// Two ranks, each on half of the GPU, have the same loss as on the whole GPU. The device has another name,
/// as measurements on one of them do not apply to the other.
TEST(LiveCudaPartition, RanksHaveMultiprocessorsOfTheirOwn) {
  const auto parts = [](int ranks) {
    return make_cuda_world(ranks, {.timeout = Seconds(60), .partition = true});
  };
  const Plan plan = disaggregated_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 3);
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun whole(plan, samples, DType::f32, gpu);
  LiveRun half(plan, samples, DType::f32, parts);
  EXPECT_NE(half.world->device_name(), whole.world->device_name());
  for (int step = 1; step <= 3; ++step) {
    const double loss = whole.step(true, step).loss;
    EXPECT_NEAR(half.step(true, step).loss, loss, 1e-3 * loss) << "step " << step;
  }
}

/// Encoder and LLM on a quarter and three quarters of the GPU have the same loss as on the whole GPU, and
/// every group of multiprocessors belongs to one of them.
TEST(LiveCudaPartition, SharedPlansHavePartsOfTheirShares) {
  const Plan plan = shared_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 0.25, 3);
  const auto parts = [&](int ranks) {
    WorldOptions options{.timeout = Seconds(60), .partition = true};
    options.shared_devices = 1;
    options.first_share = plan.encoder_share;
    return make_cuda_world(ranks, options);
  };
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun whole(disaggregated_plan({1, 1, 1, {}}, {1, 1, 1, {}}, 3), samples, DType::f32, gpu);
  LiveRun shared(plan, samples, DType::f32, parts);
  EXPECT_EQ(shared.world->device_name(), whole.world->device_name());
  EXPECT_GE(shared.world->quanta(), 2);
  EXPECT_NE(shared.world->part_of(0), shared.world->part_of(1));
  for (int step = 1; step <= 3; ++step) {
    const double loss = whole.step(true, step).loss;
    EXPECT_NEAR(shared.step(true, step).loss, loss, 1e-3 * loss) << "step " << step;
  }
}

TEST(LiveCudaMemory, ALimitIsAnErrorThatNamesTheRank) {
  const auto small = [](int ranks) { return make_cuda_world(ranks, {Seconds(60), Bytes{100'000}}); };
  try {
    LiveRun run(uniform_plan(1, 1, 2, 2), live_samples(12, 5), DType::f32, small);
    run.step(true);
    ADD_FAILURE() << "a training step in 100 kB";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("rank "), std::string::npos) << error.what();
  }
}

TEST(LiveCudaProfile, MeasuresAllUnits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::unique_ptr<World> world = make_cuda_world(2);
    ProfilerOptions options;
    options.budget = Seconds(1);
    options.llm = {256, 256};
    options.dtype = dtype;
    const ProfileTables profile = measure_profile(testing::live_model(), *world, options);
    EXPECT_EQ(profile.device, world->device_name());
    EXPECT_NE(profile.software, "");
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      EXPECT_GE(profile.tp.at(0).units[u].size(), 2U) << to_string(static_cast<ProfileUnit>(u));
    }
    EXPECT_GT(profile.optimizer.at(1e6), 0);
    EXPECT_GT(profile.message.at(1e6), 0);
    EXPECT_GT(profile.all_reduce.at(2).at(1e6), 0);
    EXPECT_EQ(parse_profile_tables(to_json(profile), "measured"), profile);
  }
}

}  // namespace live_cuda_test
}  // namespace dflop
