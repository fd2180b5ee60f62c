#include "solver/planners/mimo/planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/rounds.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace mimo_planner_test {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// Owns all objects that a request refers to.
struct Case {
  ModelSpec model;
  ClusterSpec cluster;
  testing::LinearCostModel cost;
  SimExecutor executor;
  int gbs = 0;
  std::vector<Batch> batches;
  SearchOptions search;

  Case(Random& random, int nodes, int gpus_per_node, int samples)
      : model(testing::small_model(1 + static_cast<int>(random.below(4)),
                                   2 + static_cast<int>(random.below(6)))),
        cluster(testing::small_cluster(nodes, gpus_per_node, kGiB)),
        gbs(samples) {
    for (int i = 0; i < 2; ++i) batches.push_back(testing::small_random_batch(random, gbs));
    cost.pass_s = 0.05 * random.uniform();
  }

  PlanRequest request() const {
    PlanRequest request{{model, cluster, cost}, executor, gbs, {}, batches, 1, {}, {}};
    request.search = search;
    return request;
  }
};

using Key = std::tuple<int, int, int, int, int, int, int>;

Key key_of(const Plan& plan) {
  return {plan.encoder.tp, plan.encoder.pp, plan.encoder.dp,  plan.llm.tp,
          plan.llm.pp,     plan.llm.dp,     plan.microbatches};
}

// The candidates of random problems are exactly the plans that the constraints allow.
TEST(MimoPlanner, CandidatesAreAllPlansWithinTheConstraints) {
  Random random(3);
  for (int round = 0; round < testing::rounds(12); ++round) {
    const int gpus_per_node = std::vector{4, 6, 8}[random.below(3)];
    const int gbs = std::vector{12, 16, 18}[random.below(3)];
    const Case c(random, 1 + static_cast<int>(random.below(2)), gpus_per_node, gbs);
    const int gpus = c.cluster.gpus();
    std::set<Key> expected;
    for (const int encoder_tp : {1, 2, 4, 8}) {
      for (const int llm_tp : {1, 2, 4, 8}) {
        if (gpus_per_node % encoder_tp != 0 || gpus_per_node % llm_tp != 0) continue;
        for (int encoder_pp = 1; encoder_pp <= c.model.encoder.layers; ++encoder_pp) {
          for (int llm_pp = 1; llm_pp <= c.model.llm.layers; ++llm_pp) {
            for (int encoder_dp = 1; encoder_dp <= gpus; ++encoder_dp) {
              for (int llm_dp = 1; llm_dp <= gpus; ++llm_dp) {
                const int encoder = encoder_tp * encoder_pp * encoder_dp;
                if (encoder + llm_tp * llm_pp * llm_dp != gpus || encoder % llm_tp != 0) continue;
                if (encoder_dp % llm_dp != 0 && llm_dp % encoder_dp != 0) continue;
                for (int microbatches = 1; microbatches <= gbs; ++microbatches) {
                  const bool even =
                      gbs % (microbatches * llm_dp) == 0 && gbs % (microbatches * encoder_dp) == 0;
                  if (even)
                    expected.insert(
                        {encoder_tp, encoder_pp, encoder_dp, llm_tp, llm_pp, llm_dp, microbatches});
                }
              }
            }
          }
        }
      }
    }
    std::set<Key> found;
    for (const Plan& plan : mimo_candidates(c.request())) {
      validate(plan, c.model, c.cluster);
      EXPECT_EQ(plan.layout, Layout::disaggregated);
      EXPECT_EQ(plan.order, OrderKind::one_f_one_b);
      EXPECT_EQ(plan.chunks, 1);
      EXPECT_TRUE(found.insert(key_of(plan)).second);
    }
    EXPECT_EQ(found, expected) << "round " << round;
  }
}

// With fewer candidates than run at a time, the plan is the fastest of all.
TEST(MimoPlanner, FindsTheFastestOfAllCandidates) {
  Random random(5);
  for (int round = 0; round < testing::rounds(6); ++round) {
    Case c(random, 1, 4, 8);
    c.search.recomputations = {Recomputation::full};
    c.search.placements = {RankOrder::stage_major};
    c.search.gradient_buckets = {Bytes{0}};
    const PlanRequest request = c.request();
    double least = std::numeric_limits<double>::infinity();
    std::vector<Plan> all = mimo_candidates(request);
    ASSERT_LE(all.size(), 768u);
    for (Plan& plan : all) {
      double total = 0;
      for (std::size_t k = 0; k < c.batches.size(); ++k) {
        const Assignment assignment = random_assignment(c.batches[k].size(), plan, request.seed, k);
        total += Seconds(run_iteration(request, plan, k, assignment).makespan).count();
      }
      least = std::min(least, total / static_cast<double>(c.batches.size()));
    }
    const PlanResult result = MimoPlanner().plan(request);
    ASSERT_TRUE(result.plan) << result.infeasible_reason;
    EXPECT_NEAR(result.objective.count(), least, 1e-9 * least);
    EXPECT_EQ(result.candidates, static_cast<std::int64_t>(all.size()));
  }
}

// One encoder layer and two LLM layers, 1 ms a token and layer forward and 2 ms backward, 2 GPUs. All samples
// have 10 encoder tokens and 20 LLM tokens. With 4 samples in m microbatches, the LLM takes 2 * 20 * 3 ms * 4
// / m = 480 / m ms, the encoder a quarter of it: the estimate is (m + 1) * 480 / m, smallest with the largest
// m = 4, at 600 ms.
TEST(MimoPlanner, EstimatesByTheSlowestStage) {
  Random random(1);
  Case c(random, 1, 2, 4);
  c.model = testing::small_model(1, 2);
  c.cost.pass_s = 0;
  c.batches.assign(1, Batch(4, testing::small_sample(1, 20)));
  const std::vector<Plan> sorted = by_estimate(c.request(), mimo_candidates(c.request()));
  ASSERT_EQ(sorted.size(), 3u);  // 1, 2 and 4 microbatches
  EXPECT_EQ(sorted[0].microbatches, 4);
  EXPECT_EQ(sorted[1].microbatches, 2);
  EXPECT_EQ(sorted[2].microbatches, 1);
}

// State that fits only a few candidates rules out the others before any run.
TEST(MimoPlanner, FitsTheMemory) {
  Random random(7);
  int planned = 0;
  for (int round = 0; round < testing::rounds(5); ++round) {
    Case c(random, 1, 8, 8);
    c.cost.layer_bytes = 100;
    c.cluster.gpu.memory = Bytes{240};
    const PlanResult result = MimoPlanner().plan(c.request());
    if (!result.plan) continue;
    ++planned;
    EXPECT_EQ(result.plan->share_rule, ShareRule::count);
    EXPECT_LE(largest_model_state(c.request(), *result.plan), c.cluster.gpu.usable_memory());
  }
  EXPECT_GT(planned, 0);
  Case none(random, 1, 8, 8);
  none.cost.layer_bytes = 100 * kGiB;
  const PlanResult result = MimoPlanner().plan(none.request());
  EXPECT_FALSE(result.plan);
  EXPECT_NE(result.infeasible_reason.find("every configuration exceeds GPU memory"), std::string::npos)
      << result.infeasible_reason;
}

TEST(MimoPlanner, SaysWhyThereIsNoPlan) {
  Random random(2);
  Case c(random, 1, 4, 8);
  c.search.orders = {OrderKind::gpipe};
  EXPECT_EQ(MimoPlanner().plan(c.request()).infeasible_reason,
            "Megatron-LM's MIMO runs only 1f1b, but the order is fixed to gpipe");
  c.search.orders.clear();
  c.search.can_split = [](int, int) { return false; };
  EXPECT_NE(MimoPlanner().plan(c.request()).infeasible_reason.find("no division of the 4 GPUs"),
            std::string::npos);
  c.cluster = testing::small_cluster(1, 1, kGiB);
  EXPECT_NE(MimoPlanner().plan(c.request()).infeasible_reason.find("at least 2 GPUs"), std::string::npos);
}

}  // namespace mimo_planner_test
}  // namespace dflop
