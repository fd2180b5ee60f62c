#include "solver/planners/disttrain/planner.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/planners/disttrain/split.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace disttrain_planner_test {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Encoder and LLM have 12 and 36 GPU-seconds for a microbatch, and a microbatch takes 6 s through the LLM.
// With 4 and 12 of 16 GPUs, both take 3 s. With 9 microbatches, T = 3 + 6 + 8 * 3 = 33 s. At this x the slope
// of 12 / x + 8 * 36 / (16 - x), the other side of the kink, is -12 / 16 + 288 / 144 > 0: it is the minimum.
TEST(GpuSplit, GivesBothModulesEqualTimesWithManyMicrobatches) {
  const GpuSplit split{12, 36, 6, 9};
  EXPECT_DOUBLE_EQ(split.best_encoder_gpus(16), 4);
  EXPECT_DOUBLE_EQ(split.seconds(4, 12), 33);
}

// With one microbatch, T = 12 / x + 6 falls up to the last GPU. With two, T left of the kink only falls, and
// right of it, the slope of e / x + l / (12 - x) is zero at x / (12 - x) = sqrt(e / l). The minimum is there
// or, if that is left of the kink, at the kink, x = 12 e / (e + l):
//   e 16, l 4   slope zero at x = 8, kink at 9.6: the kink
//   e 1, l 4    slope zero at x = 4, kink at 2.4: x = 4. T(4) = 1 / 4 + 4 / 8 = 0.75, T(2.4) = 0.83
TEST(GpuSplit, GivesTheEncoderMoreWithFewMicrobatches) {
  EXPECT_DOUBLE_EQ((GpuSplit{12, 36, 6, 1}).best_encoder_gpus(16), 16);
  EXPECT_DOUBLE_EQ((GpuSplit{16, 4, 0, 2}).best_encoder_gpus(12), 9.6);
  const GpuSplit split{1, 4, 0, 2};
  EXPECT_DOUBLE_EQ(split.best_encoder_gpus(12), 4);
  EXPECT_DOUBLE_EQ(split.seconds(4, 8), 0.75);
  EXPECT_GT(split.seconds(2.4, 9.6), 0.83);
}

TEST(GpuSplit, GivesAModuleWithoutWorkNothing) {
  EXPECT_EQ((GpuSplit{0, 5, 1, 4}).best_encoder_gpus(8), 0);
  EXPECT_EQ((GpuSplit{0, 0, 0, 4}).best_encoder_gpus(8), 0);
  EXPECT_EQ((GpuSplit{5, 0, 0, 4}).best_encoder_gpus(8), 8);
}

TEST(GpuSplit, IsTheMinimumOfAFineGrid) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const GpuSplit split{random.uniform() * 20, random.uniform() * 20, random.uniform(),
                         1 + static_cast<int>(random.below(12))};
    const double best = split.best_encoder_gpus(32);
    const double least = split.seconds(best, std::max(32 - best, 1e-12));
    for (double x = 0.01; x < 32; x += 0.01) {
      ASSERT_LE(least, split.seconds(x, 32 - x) * (1 + 1e-12)) << "round " << round << " x " << x;
    }
  }
}

/// Owns all objects that a request refers to.
struct Case {
  ModelSpec model = testing::small_model(3, 12);
  ClusterSpec cluster = testing::small_cluster(1, 12, kGiB);
  testing::LinearCostModel cost;
  SimExecutor executor;
  int gbs = 12;
  std::vector<Sample> profile;
  std::vector<Batch> batches;
  SearchOptions search;

  explicit Case(std::uint64_t seed) {
    Random random(seed);
    profile = testing::small_random_batch(random, 30);
    batches.push_back(testing::small_random_batch(random, gbs));
    cost.token_s = 1e-4 * (1 + static_cast<double>(random.below(9)));
    cost.head_layers = static_cast<int>(random.below(4));
  }

  PlanRequest request() const {
    PlanRequest request{{model, cluster, cost}, executor, gbs, profile, batches, 1, {}, {}};
    request.search = search;
    return request;
  }
};

/// Returns the estimate of the rule for a plan: 3 ms a token and layer for forward and backward, divided by
/// tp. `encoder` and `llm` have the tokens of the mean sample.
double estimate(const Case& c, const Plan& plan, double encoder, double llm) {
  const double samples = static_cast<double>(c.gbs) / plan.microbatches;  // of a microbatch, all dp ranks
  const double encoder_s = 3 * c.cost.token_s * c.model.encoder.layers * encoder;
  const double llm_s = 3 * c.cost.token_s * (c.model.llm.layers + c.cost.head_layers) * llm;
  const double encoder_time = samples * encoder_s / plan.encoder.ranks();
  const double through = samples / plan.llm.dp * llm_s / plan.llm.tp;
  return encoder_time + through + (plan.microbatches - 1) * std::max(encoder_time, through / plan.llm.pp);
}

// The rounded choice is the best of all: every tp, every dp that divides the global batch, every pp, and all
// GPUs that are left. All samples are equal, and the times of the cost model are linear, so the estimate can
// be computed from tokens. The profile has one kind of sample, so that means are whole numbers.
TEST(DistTrainPlanner, IsTheBestOfAllSplits) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case c(seed);
    c.model.llm.layers = 4 + static_cast<int>(seed % 9);
    const auto tiles = static_cast<std::int64_t>(1 + seed % 7);
    const auto tokens = static_cast<std::int64_t>(5 + 11 * seed % 60);
    c.profile.assign(5, testing::small_sample(tiles, tokens));
    const std::vector<DistTrainChoice> choices = disttrain_choices(c.request());
    ASSERT_FALSE(choices.empty());
    double least = std::numeric_limits<double>::infinity();
    for (const int encoder_tp : {1, 2, 4}) {  // 8 does not divide the 12 GPUs of the node
      for (const int llm_tp : {1, 2, 4}) {
        for (const int encoder_dp : {1, 2, 3, 4, 6, 12}) {
          for (const int llm_dp : {1, 2, 3, 4, 6, 12}) {
            for (const int microbatches : {1, 2, 3, 4, 6, 12}) {
              if (c.gbs / llm_dp % microbatches != 0) continue;
              for (int pp = 1; pp <= c.model.llm.layers; ++pp) {
                Plan plan;
                plan.encoder = {encoder_tp, 1, encoder_dp, {}};
                plan.llm = {llm_tp, pp, llm_dp, {}};
                plan.microbatches = microbatches;
                if (plan.ranks() > 12 || plan.encoder.ranks() % llm_tp != 0) continue;
                least = std::min(least, estimate(c, plan, 10.0 * tiles, static_cast<double>(tokens)));
              }
            }
          }
        }
      }
    }
    EXPECT_NEAR(choices.front().seconds, least, 1e-9 * least) << "seed " << seed;
    for (const DistTrainChoice& choice : choices) {
      EXPECT_NEAR(choice.seconds, estimate(c, choice.plan, 10.0 * tiles, static_cast<double>(tokens)),
                  1e-9 * choice.seconds);
    }
  }
}

TEST(DistTrainPlanner, ChoicesAreValidSortedAndDifferent) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case c(seed);
    c.cluster = testing::small_cluster(1 + static_cast<int>(seed % 3), 8, kGiB);
    if (c.cluster.gpus() < 2) continue;
    std::set<std::tuple<int, int, int, int>> seen;
    double before = 0;
    for (const DistTrainChoice& choice : disttrain_choices(c.request())) {
      const Plan& plan = choice.plan;
      validate(plan, c.model, c.cluster);
      EXPECT_EQ(plan.layout, Layout::disaggregated);
      EXPECT_EQ(plan.order, OrderKind::one_f_one_b);
      EXPECT_TRUE(plan.zero1);
      EXPECT_EQ(plan.encoder.pp, 1);
      for (const ModulePlan* module : {&plan.encoder, &plan.llm}) {
        EXPECT_TRUE(module->tp == 1 || module->tp == 2 || module->tp == 4 || module->tp == 8);
        EXPECT_EQ(c.gbs % module->dp, 0);
      }
      EXPECT_EQ(c.gbs % plan.bins(), 0);
      EXPECT_GE(choice.seconds, before);
      before = choice.seconds;
      EXPECT_TRUE(seen.emplace(plan.encoder.tp, plan.llm.tp, plan.llm.dp, plan.microbatches).second);
    }
  }
}

TEST(DistTrainPlanner, TakesTheFastestChoiceThatFits) {
  int others = 0;
  int taken = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case c(seed);
    c.cost.layer_bytes = 100;
    c.cost.token_bytes = 1;
    c.cluster.gpu.memory = Bytes{300};
    const PlanRequest request = c.request();
    const PlanResult result = DistTrainPlanner().plan(request);
    const auto lpt = make_scheduler("lpt");
    const auto peak = [&](const Plan& plan) {
      const Assignment assignment =
          lpt->schedule({c.batches[0], plan, c.model, c.cost, request.seed, 0}).assignment;
      return peak_memory(plan, c.model, c.cost, c.batches[0], assignment);
    };
    for (const DistTrainChoice& choice : disttrain_choices(request)) {
      if (c.cluster.gpu.usable_memory() < peak(choice.plan)) {
        ++others;
        continue;
      }
      ASSERT_TRUE(result.plan) << result.infeasible_reason;
      EXPECT_EQ(*result.plan, choice.plan);
      EXPECT_DOUBLE_EQ(result.objective.count(), choice.seconds);
      ++taken;
      break;
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(others, 0);  // otherwise everything fits
}

TEST(DistTrainPlanner, SaysWhyNothingFits) {
  Case c(1);
  c.cost.layer_bytes = kGiB;
  const PlanResult none = DistTrainPlanner().plan(c.request());
  EXPECT_FALSE(none.plan);
  EXPECT_NE(none.infeasible_reason.find("every configuration exceeds GPU memory"), std::string::npos)
      << none.infeasible_reason;
  c.cluster = testing::small_cluster(1, 1, kGiB);
  EXPECT_NE(DistTrainPlanner().plan(c.request()).infeasible_reason.find("at least 2 GPUs"),
            std::string::npos);
}

TEST(DistTrainPlanner, ObeysCanSplitAndRejectsChunks) {
  Case c(2);
  c.search.can_split = [](int encoder_tp, int llm_tp) { return encoder_tp == 2 && llm_tp == 1; };
  const std::vector<DistTrainChoice> choices = disttrain_choices(c.request());
  ASSERT_FALSE(choices.empty());
  for (const DistTrainChoice& choice : choices) {
    EXPECT_EQ(choice.plan.encoder.tp, 2);
    EXPECT_EQ(choice.plan.llm.tp, 1);
  }
  PlanRequest request = c.request();
  request.options.order = OrderKind::interleaved;
  EXPECT_THROW(DistTrainPlanner().plan(request), Error);
}

}  // namespace disttrain_planner_test
}  // namespace dflop
