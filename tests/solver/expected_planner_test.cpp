#include "solver/planners/expected/planner.hpp"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>

#include "core/error.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "tests/solver/fixtures.hpp"
#include "tests/solver/published_objective.hpp"

namespace dflop {
namespace expected_planner_test {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// Owns all objects that a request refers to.
struct Case {
  ModelSpec model = testing::small_model(3, 4);
  ClusterSpec cluster = testing::small_cluster(2, 4, kGiB);
  testing::LinearCostModel cost;
  std::optional<AnalyticCostModel> roofline;  // replaces `cost`
  SimExecutor executor;
  int gbs = 12;
  std::vector<Sample> profile;
  std::vector<Batch> batches;

  Case(std::uint64_t seed, int profiled, int samples = 12) : gbs(samples) {
    Random random(seed);
    model.llm.layers += static_cast<int>(seed % 2);
    profile = testing::small_random_batch(random, profiled);
    for (int i = 0; i < 2; ++i) batches.push_back(testing::small_random_batch(random, gbs));
    cost.token_s = 1e-4 * (1 + static_cast<double>(random.below(9)));
    cost.embedding_layers = static_cast<int>(random.below(4));
    cost.head_layers = static_cast<int>(random.below(4));
    cost.pass_s = 1e-3 * static_cast<double>(random.below(20));
  }

  void use_roofline() {
    const int llm_layers = model.llm.layers;
    model = fixtures::small_model();
    model.encoder.layers = 3;
    model.llm.layers = llm_layers;
    cluster = fixtures::a100_cluster();
    cluster.nodes = 2;
    cluster.gpus_per_node = 4;
    cluster.gpu = fixtures::small_cluster().gpu;
    cluster.software = fixtures::small_software();
    cluster.gpu.memory = Bytes{kGiB};
    roofline.emplace(model, cluster);
  }

  /// Makes every second sample with encoder work one of a second encoder. Kernels take so long to start that
  /// a sample of one encoder is much faster than the mean of both.
  void add_second() {
    cluster.software.kernel_overhead = Seconds(1e5);
    model.second = SecondEncoder{{"ears", 24, 8, 32, 2, 2, 4, false, false, 0}, {{16, 8}, 2}};
    roofline.emplace(model, cluster);
    const auto hear = [](std::vector<Sample>& samples) {
      bool second = false;
      for (Sample& sample : samples) {
        for (EncoderSequences& sequences : sample.encoder_sequences) sequences.second = second = !second;
      }
    };
    hear(profile);
    for (Batch& batch : batches) hear(batch);
  }

  const CostModel& costs() const { return roofline ? static_cast<const CostModel&>(*roofline) : cost; }
  PlanRequest request() const {
    return {{model, cluster, costs()}, executor, gbs, profile, batches, 1, {}, {}};
  }

  std::vector<ModulePlan> modules(int layers) const {
    std::vector<ModulePlan> all;
    for (const int tp : {1, 2, 4}) {
      if (cluster.gpus_per_node % tp != 0) continue;
      for (int pp = 1; pp <= layers; ++pp) {
        for (int dp = 1; tp * pp * dp < cluster.gpus(); ++dp)
          all.push_back({tp, pp, dp, split_layers(layers, pp)});
      }
    }
    return all;
  }

  /// All configurations of the search, in the search's order.
  std::vector<Plan> plans() const {
    std::vector<Plan> all;
    for (const ModulePlan& encoder : modules(model.encoder.layers)) {
      for (const ModulePlan& llm : modules(model.llm.layers)) {
        if (encoder.ranks() + llm.ranks() != cluster.gpus()) continue;
        for (int m = 1; m * llm.dp <= gbs; ++m) {
          Plan plan;
          plan.planner = "dflop-expected";
          plan.model = model.name;
          plan.cluster = cluster.name;
          plan.gbs = gbs;
          plan.encoder = encoder;
          plan.llm = llm;
          plan.microbatches = m;
          plan.objective = Objective::published;
          all.push_back(plan);
        }
      }
    }
    return all;
  }

  double objective(const Plan& plan) const {
    return testing::published_objective(plan, model, costs(), planning_items(profile)).count();
  }

  bool fits(const Plan& plan) const {
    for (const char* name : {"random", "lpt"}) {
      const auto scheduler = make_scheduler(name);
      for (std::size_t k = 0; k < batches.size(); ++k) {
        const Assignment assignment =
            scheduler->schedule({batches[k], plan, model, cost, 1, k, {}}).assignment;
        const Timeline timeline = executor.run(
            make_iteration({model, cluster, costs()}, plan, batches[k], assignment), Detail::usage);
        if (peak_memory(timeline) > cluster.gpu.usable_memory()) return false;
      }
    }
    return true;
  }
};

/// Odd seeds have convex costs, which lead to other bounds. Of these, every second has two encoders.
TEST(ExpectedPlanner, FindsTheSmallestObjective) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Case c(seed, seed % 3 == 0 ? 300 : 20);
    if (seed % 2 == 1) {
      c.use_roofline();
      if (seed % 4 == 3) c.add_second();
    }
    const std::vector<Plan> plans = c.plans();
    const Plan* best = nullptr;
    for (const Plan& plan : plans) {
      if (best == nullptr || c.objective(plan) < c.objective(*best)) best = &plan;
    }
    const PlanResult result = ExpectedPlanner().plan(c.request());
    ASSERT_TRUE(result.plan.has_value()) << result.infeasible_reason;
    EXPECT_EQ(*result.plan, *best) << describe(*result.plan) << " instead of " << describe(*best);
    EXPECT_DOUBLE_EQ(result.objective.count(), c.objective(*best));
    EXPECT_EQ(result.candidates, static_cast<std::int64_t>(plans.size()));
    EXPECT_NO_THROW(validate(*result.plan, c.model, c.cluster));
  }
}

// Enough microbatches that the search bounds several numbers of them at once, and memory for three layers of
// a module per GPU, so that pipelines with several stages compete.
TEST(ExpectedPlanner, FindsTheSmallestObjectiveOfManyMicrobatches) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Case c(seed, 3, 100 + static_cast<int>(seed % 100));
    c.cluster = testing::small_cluster(2 + static_cast<int>(seed % 3), 1 + static_cast<int>(seed % 2), 30);
    c.cost.layer_bytes = 10;
    if (seed % 5 == 0) {  // only the LLM matters
      for (Sample& item : c.profile) item.encoder_sequences.clear();
    }
    std::vector<Plan> plans = c.plans();
    const auto too_large = [](const ModulePlan& module) { return module.layers[0] * 10 / module.tp > 30; };
    std::erase_if(plans, [&](const Plan& p) { return too_large(p.encoder) || too_large(p.llm); });
    const PlanResult result = ExpectedPlanner().plan(c.request());
    ASSERT_EQ(result.plan.has_value(), !plans.empty());
    if (plans.empty()) continue;
    const auto better = [&](const Plan& a, const Plan& b) { return c.objective(a) < c.objective(b); };
    const Plan& best = *std::min_element(plans.begin(), plans.end(), better);
    EXPECT_EQ(*result.plan, best) << describe(*result.plan) << " instead of " << describe(best);
    EXPECT_DOUBLE_EQ(result.objective.count(), c.objective(best));
  }
}

TEST(ExpectedPlanner, TakesTheFirstThatFitsTheMemory) {
  int passed_over = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Case c(seed, 20);
    c.cost.layer_bytes = 10;
    c.cost.token_bytes = 10;
    c.cluster.gpu.memory =
        Bytes{1200 + 200 * static_cast<std::int64_t>(seed % 4)};  // a sample has up to 107 LLM tokens
    const PlanResult result = ExpectedPlanner().plan(c.request());
    ASSERT_TRUE(result.plan.has_value()) << result.infeasible_reason;
    EXPECT_TRUE(c.fits(*result.plan));
    for (const Plan& plan : c.plans()) {
      if (c.objective(plan) >= result.objective.count()) continue;
      EXPECT_FALSE(c.fits(plan)) << describe(plan) << " is better than " << describe(*result.plan);
      ++passed_over;
    }
  }
  EXPECT_GT(passed_over, 0);
}

TEST(ExpectedPlanner, TakesMoreMicrobatchesWhereFewerDoNotFit) {
  Case c(1, 1);
  c.cluster = testing::small_cluster(1, 2, 200);
  c.profile = {testing::small_sample(0, 10)};
  c.batches = {Batch(12, c.profile[0])};
  c.cost = testing::LinearCostModel();
  c.cost.pass_s = 0.1;
  c.cost.token_bytes = 10;
  // One GPU each, 5 LLM layers. T(m) = (m + 1 + 1 - 1) (0.2 + 3 ms * 5 * 120 / m), with 120 / m rounded: 4,
  // 3.3, 3.2, 3.25, 3.36, 3.5, 3.64, ... for m = 1, 2, ...: 3 is best. But the LLM rank has 200 bytes for one
  // microbatch, which is 2 samples of 10 tokens of 10 bytes, so at least 6 microbatches are needed.
  const PlanResult result = ExpectedPlanner().plan(c.request());
  ASSERT_TRUE(result.plan.has_value()) << result.infeasible_reason;
  EXPECT_EQ(result.plan->microbatches, 6);
  EXPECT_NEAR(result.objective.count(), 7 * (0.2 + 0.3), 1e-12);
}

TEST(ExpectedPlanner, CarriesTheOptions) {
  const Case c(1, 20);
  PlanRequest request = c.request();
  request.options.order = OrderKind::gpipe;
  request.options.recomputation = Recomputation::selective;
  request.options.zero1 = false;
  request.options.sequence_parallel = false;
  request.options.gradient_bucket = Bytes{1'000};
  const PlanResult result = ExpectedPlanner().plan(request);
  ASSERT_TRUE(result.plan.has_value());
  EXPECT_EQ(result.plan->planner, "dflop-expected");
  EXPECT_EQ(result.plan->model, "small");
  EXPECT_EQ(result.plan->cluster, "small");
  EXPECT_EQ(result.plan->gbs, 12);
  EXPECT_EQ(result.plan->order, OrderKind::gpipe);
  EXPECT_EQ(result.plan->recomputation, Recomputation::selective);
  EXPECT_EQ(result.plan->gradient_bucket, Bytes{1'000});
  EXPECT_FALSE(result.plan->zero1);
  EXPECT_FALSE(result.plan->sequence_parallel);
}

TEST(ExpectedPlanner, GivesTheSamePlanOnOneThread) {
  const Case c(3, 20);
  const PlanResult many = ExpectedPlanner().plan(c.request());
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  const PlanResult single = ExpectedPlanner().plan(c.request());
  EXPECT_EQ(many.plan, single.plan);
  EXPECT_EQ(many.objective, single.objective);
}

TEST(ExpectedPlanner, RejectsSchedulesOfSeveralChunks) {
  const Case c(3, 20);
  PlanRequest request = c.request();
  request.options.order = OrderKind::zb_v;
  request.options.chunks = 2;
  try {
    ExpectedPlanner().plan(request);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(error.message().find("zb-v"), std::string::npos) << error.message();
  }
}

TEST(ExpectedPlanner, SaysHowMuchModelStateIsTooMuch) {
  Case c(1, 5);
  c.cluster = testing::small_cluster(1, 2, 4 * kGiB);
  c.cost.layer_bytes = kGiB;
  // One GPU each: the LLM's 5 layers take 5 GiB, and there are at most 12 microbatches.
  const PlanResult result = ExpectedPlanner().plan(c.request());
  EXPECT_FALSE(result.plan.has_value());
  EXPECT_EQ(result.infeasible_reason,
            "every configuration exceeds GPU memory; the closest (E tp1 pp1 dp1 | L tp1 pp1 dp1 mb12) needs "
            "at least "
            "5.0 GiB on one rank, 4.0 GiB are usable");
}

TEST(ExpectedPlanner, SaysHowMuchActivationIsTooMuch) {
  Case c(1, 5);
  c.cluster = testing::small_cluster(1, 2, kGiB);
  c.cost.token_bytes = 2 * kGiB;
  c.batches = {Batch(12, testing::small_sample(0, 1))};
  c.cluster.gpu.reserved_memory = Bytes{kGiB / 2};
  // One GPU each: 12 microbatches of one sample with one token, of which the only LLM stage holds one at a
  // time.
  const PlanResult result = ExpectedPlanner().plan(c.request());
  EXPECT_FALSE(result.plan.has_value());
  EXPECT_EQ(result.infeasible_reason,
            "every configuration exceeds GPU memory; the closest (E tp1 pp1 dp1 | L tp1 pp1 dp1 mb12) needs "
            "at least "
            "2.0 GiB on one rank, 0.5 GiB are usable");
}

TEST(ExpectedPlanner, NeedsTwoGpus) {
  Case c(1, 5);
  c.cluster = testing::small_cluster(1, 1, kGiB);
  const PlanResult result = ExpectedPlanner().plan(c.request());
  EXPECT_FALSE(result.plan.has_value());
  EXPECT_EQ(result.infeasible_reason,
            "encoder and LLM on their own GPUs need at least 2 GPUs, but cluster 'small' has 1");
}

TEST(ExpectedPlanner, RejectsMissingData) {
  Case c(1, 5);
  c.profile.clear();
  EXPECT_THROW(ExpectedPlanner().plan(c.request()), Error);
  Case d(1, 5);
  d.batches.clear();
  EXPECT_THROW(ExpectedPlanner().plan(d.request()), Error);
}

TEST(ExpectedPlanner, ItemsAreAtMost256FromLargeToSmall) {
  std::vector<Sample> profile;
  for (int i = 0; i < 1000; ++i) profile.push_back(testing::small_sample(0, 1 + i));
  const std::vector<Sample> items = planning_items(profile);
  // The chosen indices are 1000 i / 256, rounded down: 0, 3, 7, ..., 996.
  ASSERT_EQ(items.size(), 256u);
  EXPECT_EQ(items.front().llm_tokens, 997);
  EXPECT_EQ(items[255].llm_tokens, 1);
  EXPECT_EQ(items[254].llm_tokens, 4);
  EXPECT_EQ(planning_items(std::span(profile).first(100)).size(), 100u);
}

}  // namespace expected_planner_test
}  // namespace dflop
