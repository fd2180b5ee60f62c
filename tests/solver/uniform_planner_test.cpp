#include "solver/planners/uniform/planner.hpp"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <set>
#include <string>

#include "core/error.hpp"
#include "solver/planners/planners.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace uniform_planner_test {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr UniformSplit kSplits[] = {UniformSplit::by_count, UniformSplit::encoder_first};

/// Owns all objects that a request refers to.
struct Case {
  ModelSpec model;
  ClusterSpec cluster;
  testing::LinearCostModel cost;
  SimExecutor executor;
  int gbs;
  std::vector<Batch> batches;
  std::function<void(std::int64_t, std::int64_t)> progress = {};

  Case(int encoder_layers, int llm_layers, int nodes, int gpus_per_node, int batch, std::uint64_t seed = 1)
      : model(testing::small_model(encoder_layers, llm_layers)),
        cluster(testing::small_cluster(nodes, gpus_per_node, kGiB)),
        gbs(batch) {
    Random random(seed);
    for (int i = 0; i < 3; ++i) batches.push_back(testing::small_random_batch(random, gbs));
    cost.pass_s = 1e-2 * static_cast<double>(random.below(5));
  }

  /// A request that leaves only parallelism, layers and microbatches open.
  PlanRequest request(OrderKind order = OrderKind::one_f_one_b) const {
    PlanRequest request = free_request();
    request.search.orders = {order};
    request.search.recomputations = {Recomputation::full};
    request.search.placements = {RankOrder::stage_major};
    request.search.gradient_buckets = {Bytes{0}};
    return request;
  }
  PlanRequest free_request() const {
    return {{model, cluster, cost}, executor, gbs, {}, batches, 1, {}, progress};
  }

  struct Outcome {
    Seconds mean{0};
    bool fits = true;
  };

  /// Runs all iterations of a plan, scheduled by make_scheduler().
  Outcome outcome(const Plan& plan) const {
    const auto scheduler = make_scheduler("random");
    Nanoseconds total{0};
    Outcome outcome;
    for (std::size_t k = 0; k < batches.size(); ++k) {
      const Assignment assignment = scheduler->schedule({batches[k], plan, model, cost, 1, k, {}}).assignment;
      const Timeline timeline =
          executor.run(make_iteration(request(), plan, batches[k], assignment), Detail::usage);
      if (peak_memory(timeline) > cluster.gpu.usable_memory()) outcome.fits = false;
      total += timeline.makespan;
    }
    outcome.mean = Seconds(total) / static_cast<double>(batches.size());
    return outcome;
  }
};

TEST(UniformPlanner, ByCountCutsOneListOfLayers) {
  const Case c(2, 4, 1, 2, 4);
  // tp1 pp1 dp2: 2 samples per rank, 1 or 2 microbatches. tp1 pp2 dp1 and tp2 pp1 dp1: 1, 2 or 4
  // microbatches.
  const std::vector<Plan> plans = uniform_candidates(c.request(), UniformSplit::by_count);
  ASSERT_EQ(plans.size(), 2u + 3u + 3u);
  // 6 layers over 2 stages of 3: 2 of the encoder and 1 of the LLM, then 3 of the LLM.
  EXPECT_EQ(plans[2].encoder.layers, (std::vector<int>{2, 0}));
  EXPECT_EQ(plans[2].llm.layers, (std::vector<int>{1, 3}));
}

TEST(UniformPlanner, EncoderFirstTriesSmallerSharesOfTheFirstStage) {
  const Case c(2, 16, 1, 4, 1);
  // 4 stages: the first has the even share of 4 LLM layers, then 3, 2, 1 and 0. The others share the rest.
  std::set<std::vector<int>> of_four_stages;
  for (const Plan& plan : uniform_candidates(c.request(), UniformSplit::encoder_first)) {
    if (plan.llm.pp != 4) continue;
    EXPECT_EQ(plan.encoder.layers, (std::vector<int>{2, 0, 0, 0}));
    of_four_stages.insert(plan.llm.layers);
  }
  EXPECT_EQ(of_four_stages, (std::set<std::vector<int>>{
                                {4, 4, 4, 4}, {3, 5, 4, 4}, {2, 5, 5, 4}, {1, 5, 5, 5}, {0, 6, 5, 5}}));
}

TEST(UniformPlanner, WithoutEqualCountsTakesTheMaxMicrobatches) {
  const Case c(2, 4, 1, 3, 10);
  std::vector<int> of_three_ranks;
  for (const Plan& plan : uniform_candidates(c.request(), UniformSplit::by_count)) {
    if (plan.llm.dp == 3) of_three_ranks.push_back(plan.microbatches);
  }
  // 10 samples over 3 ranks, 3 or 4 each: in 1 microbatch, or in 3 of 1 or 2 samples each; 2 microbatches
  // would also have 1 or 2.
  EXPECT_EQ(of_three_ranks, (std::vector<int>{1, 3}));
}

TEST(UniformPlanner, AllCandidatesAreValid) {
  for (const UniformSplit split : kSplits) {
    const Case c(5, 7, 2, 8, 24);
    const std::vector<Plan> plans = uniform_candidates(c.request(), split);
    for (const Plan& plan : plans) {
      EXPECT_NO_THROW(validate(plan, c.model, c.cluster)) << describe(plan);
      EXPECT_EQ(plan.ranks(), c.cluster.gpus());
    }
    EXPECT_GT(plans.size(), 50u);
  }
}

TEST(UniformPlanner, FindsTheBestOfAllCandidatesThatFit) {
  for (const UniformSplit split : kSplits) {
    int faster_but_too_large = 0;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Case c(3, 6, 2, 4, seed % 2 == 0 ? 16 : 18, seed);
      c.cost.token_bytes = 10;
      c.cost.layer_bytes = 20;
      c.cluster.gpu.memory = Bytes{seed < 4 ? kGiB : 1800};
      const std::vector<Plan> plans = uniform_candidates(c.request(), split);
      std::vector<Case::Outcome> outcomes;
      for (const Plan& plan : plans) outcomes.push_back(c.outcome(plan));
      std::optional<std::size_t> best;
      for (std::size_t i = 0; i < plans.size(); ++i) {
        if (outcomes[i].fits && (!best || outcomes[i].mean < outcomes[*best].mean)) best = i;
      }
      ASSERT_TRUE(best.has_value());
      for (const Case::Outcome& o : outcomes) faster_but_too_large += o.mean < outcomes[*best].mean ? 1 : 0;
      const PlanResult result = UniformPlanner(split).plan(c.request());
      ASSERT_TRUE(result.plan.has_value()) << result.infeasible_reason;
      EXPECT_EQ(*result.plan, plans[*best]) << describe(*result.plan) << " not " << describe(plans[*best]);
      EXPECT_DOUBLE_EQ(result.objective.count(), outcomes[*best].mean.count());
      EXPECT_EQ(result.candidates, static_cast<std::int64_t>(plans.size()));
    }
    EXPECT_GT(faster_but_too_large, 0);
  }
}

TEST(UniformPlanner, GivesTheSamePlanOnOneThread) {
  for (const UniformSplit split : kSplits) {
    const Case c(3, 6, 2, 4, 16);
    const PlanResult many = UniformPlanner(split).plan(c.request());
    const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
    const PlanResult single = UniformPlanner(split).plan(c.request());
    EXPECT_EQ(many.plan, single.plan);
    EXPECT_EQ(many.objective, single.objective);
  }
}

// 4 ranks and the divisors of 60 samples: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60. PyTorch makes max(1, m /
// 4) equal groups: one of up to 6, two of 5, three of 4 or 5, five and fifteen of 4, but 30 are not seven
// groups. Megatron-LM takes any number from 4 on.
TEST(UniformPlanner, InterleavesTheNumbersThatItsSystemCan) {
  const Case c(4, 12, 1, 4, 60);
  PlanRequest request = c.request(OrderKind::interleaved);
  request.options.chunks = 2;
  const auto counts = [&](UniformSplit split) {
    std::set<int> found;
    for (const Plan& plan : uniform_candidates(request, split)) {
      if (plan.llm.pp == 4) found.insert(plan.microbatches);
    }
    return found;
  };
  EXPECT_EQ(counts(UniformSplit::by_count), (std::set<int>{1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 60}));
  EXPECT_EQ(counts(UniformSplit::encoder_first), (std::set<int>{4, 5, 6, 10, 12, 15, 20, 30, 60}));
}

// 8 GPUs, 4 + 8 layers: pp and chunks divide the layers, and all 16 samples are in equal microbatches.
TEST(UniformPlanner, CutsRanksIntoChunks) {
  for (const OrderKind order : {OrderKind::interleaved, OrderKind::zb_v}) {
    const Case c(4, 8, 2, 4, 16);
    PlanRequest request = c.request(order);
    request.options.chunks = 2;
    for (const UniformSplit split : kSplits) {
      const std::vector<Plan> candidates = uniform_candidates(request, split);
      std::set<int> depths;
      for (const Plan& plan : candidates) {
        validate(plan, c.model, c.cluster);
        EXPECT_EQ(plan.chunks, 2);
        depths.insert(plan.llm.pp);
      }
      EXPECT_EQ(depths, (std::set<int>{1, 2, 4})) << "8 ranks of 2 chunks are more than 12 layers";
      const PlanResult result = UniformPlanner(split).plan(request);
      ASSERT_TRUE(result.plan);
      EXPECT_EQ(result.plan->order, order);
    }
  }
}

TEST(UniformPlanner, SaysHowMuchMemoryIsMissing) {
  Case c(2, 4, 1, 2, 4);
  c.cost.layer_bytes = 2 * kGiB;
  c.cluster.gpu.memory = Bytes{5 * kGiB};
  // 6 layers of 2 GiB: tp1 pp1 takes 12 GiB, two stages or two tp ranks 6 GiB. The first of these is tp1 pp2
  // dp1 mb1.
  const PlanResult result = UniformPlanner(UniformSplit::by_count).plan(c.request());
  EXPECT_FALSE(result.plan.has_value());
  EXPECT_EQ(result.infeasible_reason.substr(0, result.infeasible_reason.find('(')),
            "every configuration exceeds GPU memory; the closest ");
  EXPECT_NE(result.infeasible_reason.find("tp1 pp2 dp1"), std::string::npos) << result.infeasible_reason;
  EXPECT_NE(result.infeasible_reason.find(") needs at least 6.0 GiB on one rank, 5.0 GiB are usable"),
            std::string::npos)
      << result.infeasible_reason;
}

TEST(UniformPlanner, SaysWhyThereIsNoConfiguration) {
  const Case c(1, 1, 8, 1, 1);
  // tp 1 and, for a batch of one sample, dp 1: 8 stages for 2 layers.
  for (const UniformSplit split : kSplits) {
    const PlanResult result = UniformPlanner(split).plan(c.request());
    EXPECT_FALSE(result.plan.has_value());
    EXPECT_EQ(
        result.infeasible_reason,
        "no tp x pp x dp uses all 8 GPUs: tp must divide the GPUs of a node (1), dp must be at most the "
        "global batch (1), and the 1 encoder and 1 LLM layers must give each stage a layer");
  }
}

// Requests that no uniform plan meets: a recomputation of the encoder alone, and orders of colocated plans.
TEST(UniformPlanner, SaysWhyNoUniformPlanMeetsARequest) {
  const Case c(2, 4, 1, 2, 4);
  for (const UniformSplit split : kSplits) {
    PlanRequest request = c.request();
    request.options.encoder_recomputation = Recomputation::none;
    EXPECT_EQ(UniformPlanner(split).plan(request).infeasible_reason,
              "uniform plans recompute the layers of encoder and LLM alike, found an encoder recomputation");
    request.options.encoder_recomputation.reset();
    request.search.orders = {OrderKind::three_phase};
    EXPECT_EQ(UniformPlanner(split).plan(request).infeasible_reason,
              "uniform plans run in none of the orders three-phase");
  }
}

TEST(UniformPlanner, RejectsBatchesOfAnotherSize) {
  Case c(2, 4, 1, 2, 4);
  c.gbs = 5;
  try {
    UniformPlanner(UniformSplit::by_count).plan(c.request());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_EQ(error.message(),
              "expected a gbs of at least 1 and iterations of gbs = 5 samples, found one of 4");
  }
}

TEST(UniformPlanner, ReportsProgressUpToTheTotal) {
  Case c(2, 4, 1, 2, 4);
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  c.progress = [&](std::int64_t done, std::int64_t total) { calls.emplace_back(done, total); };
  const PlanResult result = UniformPlanner(UniformSplit::by_count).plan(c.request());
  ASSERT_FALSE(calls.empty());
  for (std::size_t i = 1; i < calls.size(); ++i) EXPECT_GE(calls[i].first, calls[i - 1].first);
  EXPECT_EQ(calls.back(), std::pair(result.candidates, result.candidates));
}

TEST(Planners, AreMadeByName) {
  std::string all;
  for (const std::string_view name : planner_names()) {
    EXPECT_EQ(find_planner(name).make()->name(), name);
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  try {
    find_planner("alpa");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(error.message(), "unknown planner 'alpa', expected one of " + all);
  }
}

}  // namespace uniform_planner_test
}  // namespace dflop
