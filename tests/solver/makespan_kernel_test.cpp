#include "solver/makespan/kernel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "makespan_fixtures.hpp"

namespace dflop {
namespace makespan_kernel_test {

using testing::group_values;
using testing::random_load_pipeline;

LoadTable random_loads(const LoadPipeline& pipeline, Random& random) {
  LoadTable table;
  for (const Load& load : pipeline.loads) {
    std::vector<double>& sums =
        table.emplace_back(load.of_microbatch ? pipeline.microbatches : pipeline.bins());
    for (double& sum : sums) sum = random.below(4) == 0 ? 0.0 : 10 * random.uniform();
  }
  return table;
}

TEST(MakespanKernel, TakesTheSlowestGroupLikeMakespan) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    const LoadPipeline pipeline = random_load_pipeline(random);
    const LoadTable loads = random_loads(pipeline, random);
    const MakespanKernel kernel(pipeline);
    CriticalPath path;
    double slowest = 0;
    for (int q = 0; q < kernel.groups(); ++q) {
      kernel.evaluate(group_values(kernel, pipeline, loads, q), 0, path);
      slowest = std::max(slowest, path.makespan_s);
    }
    // Both use the same additions and maxima in the same order.
    ASSERT_EQ(slowest, makespan(pipeline, loads)) << round;
  }
}

double smoothing_of(Random& random) {
  return random.below(2) == 0 ? 0.0 : 3 * random.uniform();
}

// A maximum of sums is convex in its terms, with or without smoothing: it is nowhere below a tangent.
TEST(MakespanKernel, GradientBoundsAllOtherLoads) {
  Random random(2);
  for (int round = 0; round < 500; ++round) {
    const LoadPipeline pipeline = random_load_pipeline(random);
    const MakespanKernel kernel(pipeline);
    const auto values = [&] { return group_values(kernel, pipeline, random_loads(pipeline, random), 0); };
    const std::vector<double> here = values();
    const double smoothing = smoothing_of(random);
    CriticalPath path;
    kernel.evaluate(here, smoothing, path);
    ASSERT_GE(path.smooth_s, path.makespan_s);
    ASSERT_TRUE(smoothing > 0 || path.smooth_s == path.makespan_s);
    for (int other = 0; other < 20; ++other) {
      const std::vector<double> there = values();
      double tangent = path.smooth_s;
      for (std::size_t c = 0; c < here.size(); ++c) tangent += path.gradient[c] * (there[c] - here[c]);
      CriticalPath elsewhere;
      kernel.evaluate(there, smoothing, elsewhere);
      ASSERT_LE(tangent, elsewhere.smooth_s + 1e-12 * (elsewhere.smooth_s + path.smooth_s));
    }
  }
}

// To first order, if smooth. Loads change by 1e-6, and the second derivative is 1 / (2 smoothing) for each of
// fewer than 100 maxima.
TEST(MakespanKernel, GradientIsTheDerivative) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    const LoadPipeline pipeline = random_load_pipeline(random);
    const MakespanKernel kernel(pipeline);
    std::vector<double> values = group_values(kernel, pipeline, random_loads(pipeline, random), 0);
    const std::size_t column = random.below(values.size());
    CriticalPath here;
    CriticalPath there;
    kernel.evaluate(values, 2.0, here);
    values[column] += 1e-6;
    kernel.evaluate(values, 2.0, there);
    ASSERT_NEAR((there.smooth_s - here.smooth_s) / 1e-6, here.gradient[column], 1e-3) << round;
  }
}

// A path has at most as many additions as there are steps and messages, fewer than 1000, and each rounds by
// 2^-24.
TEST(MakespanKernel, LanesAreTheSameToFloatRounding) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const LoadPipeline pipeline = random_load_pipeline(random);
    const MakespanKernel kernel(pipeline);
    MakespanLanes lanes(kernel);
    const std::vector<double> base = group_values(kernel, pipeline, random_loads(pipeline, random), 0);
    lanes.set(base);
    for (int batch = 0; batch < 3; ++batch) {
      const double smoothing = smoothing_of(random);
      std::vector<std::vector<double>> values(Lanes::kCount, base);
      for (int z = 0; z < Lanes::kCount; ++z) {
        for (int change = 0; change < 3; ++change) {
          const int column = static_cast<int>(random.below(base.size()));
          values[z][column] = 10 * random.uniform();
          lanes.change(z, column, values[z][column]);
        }
      }
      const Lanes result = lanes.evaluate(smoothing);
      lanes.reset();
      for (int z = 0; z < Lanes::kCount; ++z) {
        CriticalPath path;
        kernel.evaluate(values[z], smoothing, path);
        ASSERT_NEAR(result.value[z], path.smooth_s, 1e-4 * path.smooth_s) << round;
      }
    }
  }
}

TEST(MakespanKernel, GroupsShareNothing) {
  const PipelineShape shape{OrderKind::one_f_one_b, 3, 1, 4};
  EXPECT_EQ(MakespanKernel(simple_load_pipeline(shape, 1, 3, 0, 2.0)).groups(), 3);
  EXPECT_EQ(MakespanKernel(simple_load_pipeline(shape, 1, 3, 2, 2.0)).groups(), 1);
}

}  // namespace makespan_kernel_test
}  // namespace dflop
