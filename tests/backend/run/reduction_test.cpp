// Gradients that are reduced during the last backward: when each is complete, and that its value stays.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "backend/model/made_up.hpp"
#include "tests/backend/run/live_random.hpp"

namespace dflop {
namespace reduction_test {

using testing::disaggregated_plan;
using testing::LiveRun;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;

std::vector<Plan> plans() {
  Plan rows = uniform_plan(2, 2, 2, 3);
  rows.sequence_parallel = true;
  Plan chunks = disaggregated_plan({1, 1, 2, {}}, {1, 2, 2, {}}, 4);
  chunks.order = OrderKind::interleaved;
  chunks.chunks = 2;
  chunks.llm.layers = split_layers(4, 4);
  Plan split = uniform_plan(1, 2, 2, 4);
  split.order = OrderKind::zb_h1;
  Plan whole = uniform_plan(1, 1, 3, 2);
  whole.zero1 = false;
  return {whole, rows, chunks, split, disaggregated_plan({1, 1, 3, {}}, {1, 1, 2, {}}, 3)};
}

/// Sums add value by value, whatever their bucket and time, so all bits are the same as in a reduction after
/// the last backward.
TEST(LiveReduction, BucketsChangeNoBit) {
  for (const Plan& plan : plans()) {
    for (const int bytes : {1'000, 4'000, 30'000}) {
      SCOPED_TRACE(describe(plan) + " buckets of " + std::to_string(bytes));
      LiveRun expected(plan, testing::live_samples(12, 5), DType::f32);
      Plan buckets = plan;
      buckets.gradient_bucket = Bytes{bytes};
      LiveRun found(buckets, testing::live_samples(12, 5), DType::f32);
      for (int step = 1; step <= 2; ++step) {
        EXPECT_EQ(found.step(true, step).loss, expected.step(true, step).loss);
      }
      for (const Kind kind : {Kind::gradient, Kind::weight, Kind::moment2}) {
        const WholeTensors tensors = found.executor->read(kind);
        for (const auto& [name, tensor] : expected.executor->read(kind)) {
          EXPECT_EQ(tensors.at(name).values, tensor.values) << name;
        }
      }
    }
  }
}

using Snapshot = std::pair<std::int64_t, std::vector<double>>;  // gradients from this value on

/// Runs one microbatch through a whole model on one rank. Returns the gradients that the backward reports as
/// complete, and all gradients afterwards. All gradients have the value `before` when the step starts.
std::pair<std::vector<Snapshot>, std::vector<double>> backward_of(const ModelSpec& model, double before = 0) {
  Plan plan = uniform_plan(1, 1, 1, 1);
  const std::vector<Sample> samples = testing::live_samples(6, 5);
  const MadeUpContents contents(model, 7);
  const BatchContent content(plan, model, samples, testing::dealt(plan, samples.size()), contents);
  const std::unique_ptr<World> world = std::make_unique<HostWorld>(1);
  LocalRank parts(*world, 0, DType::f64);
  const RankContext rank = context_of(parts, consecutive_ranks(0, 1), 0, false);
  StageModule module(model, stage_places(plan_stages(plan, model)).front(), 1, 0, 7, rank);
  for (const Parameter& parameter : module.parameters().list()) {
    const std::vector<double> values(static_cast<std::size_t>(parameter.count()), before);
    module.parameters().write(rank, parameter, ParameterStore::Kind::gradient, values);
  }
  module.parameters().begin_gradients();
  const StageInput input{content.encoder(0, 0, {true, true}), content.llm(0, 0), content.token_weight()};
  SumTensor loss(rank, 1, 1);
  rank.kernels.zero(Sums(loss));
  const auto gradients_from = [&](std::int64_t from) {
    const Sums all = module.parameters().gradients();
    return download(rank, static_cast<const double*>(all.data) + from, DType::f64,
                    static_cast<std::size_t>(all.columns - from));
  };
  StageTape tape;
  module.prepare(input);
  module.forward({}, input, loss, tape);
  std::vector<Snapshot> snapshots;
  module.backward({}, tape, [&](std::int64_t from) { snapshots.emplace_back(from, gradients_from(from)); });
  module.parameters().complete_gradients(rank, module.parameters().gradients().columns);
  return {snapshots, gradients_from(0)};
}

/// A step starts its sums from zero: it neither reads nor keeps the NaNs of before the step.
TEST(LiveReduction, NoGradientOfThePreviousStepIsRead) {
  const auto [snapshots, expected] = backward_of(testing::live_model());
  const auto [other_snapshots, found] =
      backward_of(testing::live_model(), std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(found, expected);
}

/// Each of the seven layers completes more gradients, and complete gradients no longer change. After the last
/// layer, all gradients are complete except the gradients of patches and norms, which come first.
TEST(LiveReduction, CompleteGradientsNoLongerChange) {
  const auto [snapshots, all] = backward_of(testing::live_model());
  ASSERT_EQ(snapshots.size(), 7U);
  std::size_t known = 0;
  for (const auto& [from, values] : snapshots) {
    EXPECT_GT(values.size(), known);
    known = values.size();
    EXPECT_EQ(values, std::vector<double>(all.begin() + from, all.end())) << "from " << from;
  }
  EXPECT_GT(10 * known, 8 * all.size());
}

}  // namespace reduction_test
}  // namespace dflop
