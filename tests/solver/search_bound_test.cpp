#include "solver/planners/search/bound.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "solver/planners/search/cuts.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "tests/solver/search_fixtures.hpp"

namespace dflop {
namespace search_bound_test {

using testing::PresetSearch;
using testing::SmallSearch;

/// Runs each iteration under its assignment, and expects neither time nor memory below the floors.
void expect_above(const PlanRequest& request, const PlanFloor& floor, const Plan& plan,
                  const std::vector<Assignment>& assignments) {
  std::vector<Seconds> times;
  Bytes peak;
  for (std::size_t k = 0; k < request.batches.size(); ++k) {
    const Timeline timeline = testing::run_plan(request, plan, request.batches[k], assignments[k]);
    times.push_back(timeline.makespan);
    peak = std::max(peak, peak_memory(timeline));
  }
  const double objective = objective_value(request.search.objective, times).count();
  EXPECT_GE(objective, floor.bound_s) << describe(plan) << " " << to_string(plan.recomputation);
  EXPECT_GE(peak, floor.memory) << describe(plan) << " " << to_string(plan.recomputation);
}

/// The bound over all cuts of a plan that fits under at least one of them.
double cuts_bound_of_fitting(const SearchBounds& bounds, const Plan& plan) {
  const double bound_s = bounds.cuts_bound(plan);
  EXPECT_LT(bound_s, std::numeric_limits<double>::infinity()) << describe(plan) << " fits under a cut";
  return bound_s;
}

void expect_floors_hold(PlanRequest request, int rounds, std::uint64_t seed,
                        SpacePart part = SpacePart::unshared) {
  const auto lpt = make_scheduler("lpt");
  Random random(seed);
  for (const PlanObjective objective : {PlanObjective::mean, PlanObjective::p95, PlanObjective::cvar}) {
    request.search.objective = objective;
    const SearchSpace space(request, part);
    SearchBounds bounds(request);
    ASSERT_TRUE(bounds.known());
    for (int round = 0; round < rounds; ++round) {
      const auto drawn = testing::draw_plan(space, request.model, random);
      if (!drawn) continue;
      const Plan& plan = drawn->second;
      PlanFloor floor = bounds.plan_floor(plan);
      const PlanFloor shape = bounds.shape_floor(drawn->first, plan.recomputation, plan.microbatches);
      floor.bound_s = std::max(floor.bound_s, shape.bound_s);
      floor.memory = std::max(floor.memory, shape.memory);
      if (floor.memory <= request.cluster.gpu.usable_memory())
        floor.bound_s = std::max(floor.bound_s, cuts_bound_of_fitting(bounds, plan));
      std::vector<Assignment> blind;
      std::vector<Assignment> packed;
      for (std::size_t k = 0; k < request.batches.size(); ++k) {
        blind.push_back(random_assignment(request.gbs, plan, random.bits(), k));
        packed.push_back(
            lpt->schedule({request.batches[k], plan, request.model, request.cost, 1, k}).assignment);
      }
      expect_above(request, floor, plan, blind);
      expect_above(request, floor, plan, packed);
    }
  }
}

TEST(SearchBounds, HoldOnSmallRandomModels) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SmallSearch c(3, 5, 2, 4, 24, 3, seed);
    c.cost.linear.layer_bytes = 1000;
    c.cost.linear.token_bytes = 84;  // divisible by tp and recomputation
    if (seed == 4) {
      for (Sample& sample : c.batches[1]) sample.encoder_sequences.clear();
    }
    if (seed == 5) c.batches[2][0].llm_tokens = 0;
    expect_floors_hold(c.request(), 60, seed);
  }
}

TEST(SearchBounds, HoldForSharedPlans) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SmallSearch c(3, 4, 1, 4, 8, 2, seed);
    c.cost.linear.layer_bytes = 600;
    c.cost.linear.token_bytes = 12;
    c.cost.arithmetic = 0.25 + 0.25 * static_cast<double>(seed);
    expect_floors_hold(c.request(), 40, seed, SpacePart::shared);
  }
  const PresetSearch c("llava-ov-llama3-8b", "vision_mix", 1, 32, 2);
  expect_floors_hold(c.request(), 10, 3, SpacePart::shared);
}

TEST(SearchBounds, HoldOnPresets) {
  for (const char* model : {"llava-ov-llama3-8b", "internvl2.5-72b", "qwen2.5-vl-7b"}) {
    const PresetSearch c(model, "vision_mix", 2, 64, 3);
    expect_floors_hold(c.request(), 25, 11);
  }
  const PresetSearch hears("qwen2.5-omni-7b", "omni_mix", 2, 64, 3);
  expect_floors_hold(hears.request(), 25, 11);
}

// The bound over all cuts is near the smallest bound of any cut, and infinite only if no cut fits: this test
// checks every cut. Unlike a plan's own bound, it omits reductions and the steps of earlier ranks.
TEST(SearchBounds, OnAllCutsAreNearTheSmallestOfAny) {
  int infinite = 0;
  int finite = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SmallSearch c(4, 6, 1, 4, 8, 2, seed);
    c.cost.linear.layer_bytes = 1000;
    c.cost.linear.token_bytes = 12;
    c.cost.reduction_s = 0;
    if (seed >= 2) c.cluster.gpu.memory = Bytes{static_cast<std::int64_t>(4000 + 1500 * seed)};
    const PlanRequest request = c.request();
    const SearchSpace space(request);
    SearchBounds bounds(request);
    Random random(seed);
    for (int round = 0; round < 150; ++round) {
      const auto drawn = testing::draw_plan(space, c.model, random);
      if (!drawn) continue;
      double least_s = std::numeric_limits<double>::infinity();
      for (const Plan& cut : all_cuts(drawn->second, c.model)) {
        const PlanFloor floor = bounds.plan_floor(cut);
        if (floor.memory <= request.cluster.gpu.usable_memory()) least_s = std::min(least_s, floor.bound_s);
      }
      const double bound_s = bounds.cuts_bound(drawn->second);
      const bool chunked = drawn->second.chunks > 1;
      // A colocated plan's own bound does not count what comes before its LLM steps.
      if (drawn->second.layout != Layout::colocated) {
        EXPECT_LE(bound_s, least_s * (1 + 1e-9)) << describe(drawn->second);
      }
      if (least_s == std::numeric_limits<double>::infinity()) {
        infinite += bound_s == least_s ? 1 : 0;
      } else if (!chunked && drawn->second.layout != Layout::colocated &&
                 !traits(drawn->second.order).reads_limits) {
        // The path of the largest sample through all stages is covered by the bound of the shape.
        const PlanFloor shape =
            bounds.shape_floor(drawn->first, drawn->second.recomputation, drawn->second.microbatches);
        EXPECT_GE(std::max(bound_s, shape.bound_s), 0.9 * least_s) << describe(drawn->second);
        ++finite;
      }
    }
  }
  EXPECT_GT(infinite, 30);
  EXPECT_GT(finite, 100);
}

// A frozen encoder runs ahead and gets no gradients. A frozen LLM and LoRA have other weights, memory and
// reductions.
TEST(SearchBounds, HoldForFrozenPartsAndLora) {
  const PresetSearch c("llava-ov-llama3-8b", "vision_mix", 2, 64, 3);
  for (const TrainedParts& trained :
       {TrainedParts{false, true, true, 0}, TrainedParts{false, false, true, 0},
        TrainedParts{false, true, false, 0}, TrainedParts{false, false, false, 16},
        TrainedParts{true, true, false, 8}, TrainedParts{true, false, false, 0}}) {
    PlanRequest request = c.request();
    request.options.trained = trained;
    SCOPED_TRACE(describe(trained));
    expect_floors_hold(request, 25, 11);
    expect_floors_hold(request, 10, 5, SpacePart::shared);
    request.options.order = OrderKind::eager_1f1b;
    expect_floors_hold(request, 10, 3);
  }
}

// Eight equal samples, one on each of eight GPUs: a rank computes, reduces its trained parts and runs its
// optimizer step, and the bound equals this up to rounding. So a bound that counted too much for frozen parts
// would exceed the run.
TEST(SearchBounds, AreTightForEqualRanksAndAnyTrainedParts) {
  PresetSearch c("llava-ov-llama3-8b", "vision_mix", 1, 8, 1);
  const auto sees = [](const Sample& sample) { return !sample.encoder().empty(); };
  const Sample sample = *std::ranges::find_if(c.batches[0], sees);
  c.batches[0].assign(8, sample);
  for (const TrainedParts& trained :
       {TrainedParts{}, TrainedParts{false, true, true, 0}, TrainedParts{false, true, false, 0},
        TrainedParts{false, false, false, 16}, TrainedParts{true, false, false, 0}}) {
    PlanRequest request = c.request();
    request.options.trained = trained;
    Plan plan;
    static_cast<PlanOptions&>(plan) = request.options;
    plan.layout = Layout::uniform;
    plan.gbs = 8;
    plan.encoder = {1, 1, 8, {27}};
    plan.llm = {1, 1, 8, {32}};
    const Assignment assignment{1, 8, {0, 1, 2, 3, 4, 5, 6, 7}};
    const double run_s = Seconds(testing::run_plan(request, plan, c.batches[0], assignment).makespan).count();
    const double bound_s = SearchBounds(request).plan_floor(plan).bound_s;
    EXPECT_LE(bound_s, run_s) << describe(trained);
    EXPECT_GE(bound_s, 0.999 * run_s) << describe(trained);
  }
}

// On nodes of two types, in either order.
TEST(SearchBounds, HoldOnMixedClusters) {
  const ClusterSpec slow = PresetSearch::nodes_of("a100-80g", 1);
  const ClusterSpec fast = PresetSearch::nodes_of("h100", 1);
  std::vector<NodeGroup> groups = {{1, slow.gpu, slow.software}, {1, fast.gpu, fast.software}};
  for (int turn = 0; turn < 2; ++turn) {
    ClusterSpec mixed = slow;
    set_node_groups(mixed, groups);
    const PresetSearch c("llava-ov-llama3-8b", "vision_mix", mixed, 64, 3);
    expect_floors_hold(c.request(), 25, 11);
    std::swap(groups[0], groups[1]);
  }
}

// If memory is short, eager-1f1b holds few microbatches and waits for each. Its bound reflects this and still
// holds.
TEST(SearchBounds, HoldIfMemoryIsShort) {
  double most = 0;  // ratio of a bound to the one with ample memory
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SmallSearch c(3, 5, 2, 4, 24, 2, seed);
    c.cost.linear.token_bytes = 84;
    const SmallSearch ample = c;
    c.cluster.gpu.memory = Bytes{16'000 << seed};
    PlanRequest request = c.request();
    request.options.order = OrderKind::eager_1f1b;
    expect_floors_hold(request, 60, seed);
    const SearchSpace space(request);
    const PlanRequest usual = ample.request();
    for (const Plan& plan : testing::all_plans(space, c.model)) {
      const double floor_s = SearchBounds(request).plan_floor(plan).bound_s;
      most = std::max(most, floor_s / SearchBounds(usual).plan_floor(plan).bound_s);
    }
  }
  EXPECT_GT(most, 2);
}

/// Expects no assignment of the request's only batch below the bound of any plan with few bins. Returns the
/// largest ratio of a bound to the best assignment.
double expect_no_assignment_below(const PlanRequest& request) {
  double tightest = 0;
  const SearchSpace space(request);
  const SearchBounds bounds(request);
  for (const Plan& plan : testing::all_plans(space, request.model)) {
    if (plan.recomputation != Recomputation::none || plan.bins() > 3) continue;
    const PlanFloor floor = bounds.plan_floor(plan);
    double best = std::numeric_limits<double>::max();
    Assignment assignment{plan.microbatches, plan.llm.dp, std::vector<std::int32_t>(request.gbs, 0)};
    const auto next = [&] {
      for (std::int32_t& bin : assignment.bin) {
        if (++bin < plan.bins()) return true;
        bin = 0;
      }
      return false;
    };
    do {
      const std::set<std::int32_t> filled(assignment.bin.begin(), assignment.bin.end());
      if (static_cast<int>(filled.size()) < plan.bins()) continue;
      const Timeline timeline = testing::run_plan(request, plan, request.batches[0], assignment);
      best = std::min(best, Seconds(timeline.makespan).count());
    } while (next());
    EXPECT_LE(floor.bound_s, best) << describe(plan);
    tightest = std::max(tightest, floor.bound_s / best);
  }
  return tightest;
}

// With one iteration, a bound on the mean is a bound on the iteration: no assignment is below it.
TEST(SearchBounds, HoldForeveryAssignment) {
  double tightest = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const SmallSearch c(2, 3, 1, 2, 5, 1, seed);
    tightest = std::max(tightest, expect_no_assignment_below(c.request()));
  }
  EXPECT_GT(tightest, 0.98) << "a bound of zero would also hold";
}

// A model with two encoders on a small GPU with a large overhead for each kernel. Microbatches with only
// pictures or only sounds do not pay the overhead of the other encoder, so bounds must not count it.
TEST(SearchBounds, HoldForEveryAssignmentOfTwoEncoders) {
  double tightest = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SmallSearch c(2, 3, 1, 2, 5, 1, seed);
    Random random(seed);
    for (Sample& sample : c.batches[0]) {
      for (EncoderSequences& sequences : sample.encoder_sequences) sequences.second = random.below(2) == 0;
    }
    c.model = fixtures::small_model();
    c.model.second = SecondEncoder{{"ears", 2, 4, 8, 2, 2, 2, false, false, 0}, {{8, 8}, 2}};
    ClusterSpec cluster = fixtures::small_cluster();
    cluster.nodes = 1;
    cluster.gpus_per_node = 2;
    cluster.gpu.memory = Bytes{std::int64_t{1} << 30};
    const AnalyticCostModel cost(c.model, cluster);
    const PlanRequest request{{c.model, cluster, cost}, c.executor, c.gbs, {}, c.batches, 1, {}, {}, {}};
    tightest = std::max(tightest, expect_no_assignment_below(request));
  }
  EXPECT_GT(tightest, 0.9) << "a bound of zero would also hold";
}

}  // namespace search_bound_test
}  // namespace dflop
