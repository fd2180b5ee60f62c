#include "sim/conditions.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace perturbation_test {

PricedProgram two_stages() {
  Pipeline pipeline;
  pipeline.stages = 2;
  pipeline.microbatches = 2;
  pipeline.message = Nanoseconds(3'000'000);
  return make_pipeline(pipeline);
}

TEST(Perturbation, FindsTheGroupOfARank) {
  Program program;
  program.groups = {{0, 2, 0, 0, 0, 0}, {2, 4, 1, 0, 0, 0}, {6, 1, 2, 0, 0, 0}};
  const std::vector<std::int32_t> expected = {0, 0, 1, 1, 1, 1, 2};
  for (std::int32_t rank = 0; rank < 7; ++rank) EXPECT_EQ(group_of_rank(program, rank), expected[rank]);
  std::swap(program.groups[0], program.groups[2]);  // groups need not be in the order of their ranks
  for (std::int32_t rank = 0; rank < 7; ++rank) EXPECT_EQ(group_of_rank(program, rank), 2 - expected[rank]);
}

// Stage 1 twice as slow: F0 13-33, B0 33-73, F1 73-93, B1 93-133; stage 0's B1 136-156.
TEST(Perturbation, SlowsOneGroup) {
  PricedProgram priced = two_stages();
  slow_down(priced.costs, priced.program, 1, 2);
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::usage);
  EXPECT_EQ(timeline.makespan, Nanoseconds(156'000'000));
  EXPECT_EQ(timeline.groups[0].busy, Nanoseconds(60'000'000));
  EXPECT_EQ(timeline.groups[1].busy, Nanoseconds(120'000'000));
}

// Messages at half the bandwidth take 6 instead of 3 ms: of the chain F0, message, F0 B0 F1 B1, message, B1
// both messages are 3 longer.
TEST(Perturbation, SlowsTheLinksOfOneGroup) {
  PricedProgram priced = two_stages();
  slow_links(priced.costs, priced.program, {1, 0.5});
  EXPECT_EQ(simulate(priced.program, priced.costs, Detail::usage).makespan, Nanoseconds(102'000'000));
}

TEST(Perturbation, FreesCommunication) {
  PricedProgram priced = two_stages();
  free_communication(priced.costs);
  EXPECT_EQ(simulate(priced.program, priced.costs, Detail::usage).makespan, Nanoseconds(90'000'000));
}

// Mean 1 and, for sigma 0.2, standard deviation sqrt(exp(0.04) - 1) = 0.202: with 100,000 draws their
// estimates are within 0.004 (six standard errors of the mean) and 0.005.
TEST(Perturbation, JitterKeepsTheMean) {
  ProgramCosts costs;
  costs.instruction.assign(100'000, Nanoseconds(1'000'000));
  Random random(9);
  add_jitter(costs, 0.2, random);
  double sum = 0;
  double squares = 0;
  for (const Nanoseconds duration : costs.instruction) {
    const double factor = static_cast<double>(duration.count()) / 1e6;
    sum += factor;
    squares += factor * factor;
  }
  const double mean = sum / 1e5;
  EXPECT_NEAR(mean, 1, 0.004);
  EXPECT_NEAR(std::sqrt(squares / 1e5 - mean * mean), std::sqrt(std::exp(0.04) - 1), 0.005);
}

TEST(Perturbation, JitterFollowsItsSeed) {
  const auto drawn = [](std::uint64_t seed) {
    PricedProgram priced = two_stages();
    Random random(seed);
    add_jitter(priced.costs, 0.1, random);
    return priced.costs.instruction;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

}  // namespace perturbation_test
}  // namespace dflop::testing
