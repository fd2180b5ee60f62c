// Guarantees of every assignment solver, checked for the whole registry.
#include "solver/schedulers/methods.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "core/error.hpp"
#include "solver/bins/heuristics.hpp"
#include "solver/makespan/bound.hpp"
#include "tests/rounds.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace assignment_solvers_test {

using testing::RandomItems;

/// A small random problem of any kind: both forms of the encoder's load, empty bins, caps.
struct RandomProblem {
  RandomItems items;
  std::vector<double> tokens;
  BinProblem problem;

  RandomProblem(Random& random, int most_items, bool caps) : items(random, 0, true) {
    const int dp = 1 + static_cast<int>(random.below(3));
    const int microbatches = 1 + static_cast<int>(random.below(dp == 1 ? 4 : 2));
    const int bins = dp * microbatches;
    const int count = bins + static_cast<int>(random.below(std::max(1, most_items - bins)));
    items = RandomItems(random, count, random.below(2) == 0);
    problem = {items.encoder_s, items.llm_s, bins, dp, random.below(2) == 0, random.below(3) == 0};
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<double>(random.below(20)));
    if (!caps) return;
    double sum = 0;
    for (const double t : tokens) sum += t;
    const double mean = std::max(1.0, sum / bins);
    problem.caps.push_back({"tokens", tokens, std::floor(mean * (1 + 1.5 * random.uniform())) + 2});
    if (random.below(2) == 0) {
      const bool of_microbatch = random.below(2) == 0;
      const int window = 1 + static_cast<int>(random.below(microbatches));
      const double most = mean * window * (of_microbatch ? dp : 1) * (1 + random.uniform());
      problem.caps.push_back({"bytes", tokens, most, window, of_microbatch});
    }
  }
  RandomProblem(const RandomProblem&) = delete;  // the problem refers to the items
};

/// The smallest objective over all assignments that satisfy every constraint; negative if there is none.
double optimum(const AssignmentProblem& assignment) {
  const BinProblem& problem = assignment.bins;
  std::vector<std::int32_t> bin(problem.items(), 0);
  double best = -1;
  while (true) {
    const std::set<std::int32_t> used(bin.begin(), bin.end());
    if (problem.allow_empty || used.size() == static_cast<std::size_t>(problem.bins)) {
      const double load = assignment.objective(bin);
      if ((best < 0 || load < best) && !broken_cap(problem, bin)) best = load;
    }
    std::size_t digit = 0;
    while (digit < bin.size() && ++bin[digit] == problem.bins) bin[digit++] = 0;
    if (digit == bin.size()) return best;
  }
}

void expect_valid(const AssignmentProblem& problem, const AssignmentSolution& solution,
                  const std::string& what) {
  ASSERT_EQ(solution.bin.size(), problem.bins.items()) << what << " " << solution.reason;
  std::set<std::int32_t> used;
  for (const std::int32_t b : solution.bin) {
    ASSERT_GE(b, 0) << what;
    ASSERT_LT(b, problem.bins.bins) << what;
    used.insert(b);
  }
  if (!problem.bins.allow_empty) {
    EXPECT_EQ(used.size(), static_cast<std::size_t>(problem.bins.bins)) << what;
  }
  EXPECT_EQ(broken_cap(problem.bins, solution.bin), std::nullopt) << what;
  EXPECT_DOUBLE_EQ(solution.value.count(), problem.objective(solution.bin)) << what;
  EXPECT_LE(solution.bound.count(), solution.value.count()) << what;
}

/// bound <= optimum <= result, for every solver; exact ones find the optimum.
void check_against_brute_force(int seed, bool caps, int rounds) {
  Random random(static_cast<std::uint64_t>(seed));
  int infeasible = 0;
  int searched = 0;
  int exact = 0;
  for (int round = 0; round < rounds; ++round) {
    const RandomProblem data(random, 7, caps);
    const AssignmentProblem problem{data.problem};
    const double best = optimum(problem);
    for (const Method& method : methods()) {
      const std::string what =
          std::string(method.name) + " seed " + std::to_string(seed) + " round " + std::to_string(round);
      const AssignmentSolution solution = method.solve(problem, {1, 20000});
      if (solution.status == ScheduleStatus::infeasible) {
        EXPECT_NE(solution.reason, "") << what;
        EXPECT_TRUE(solution.bin.empty()) << what;
        EXPECT_LT(best, 0) << "missed a feasible assignment, " << what;
        ++infeasible;
        continue;
      }
      ASSERT_GE(best, 0) << what;
      expect_valid(problem, solution, what);
      EXPECT_LE(best, solution.value.count() * (1 + 1e-12)) << what;
      EXPECT_LE(solution.bound.count(), best * (1 + 1e-9)) << what;
      const bool proven = solution.status == ScheduleStatus::optimal;
      const bool exact_method = method.name == "ilp" && solution.status != ScheduleStatus::fallback;
      if (proven || exact_method) {
        EXPECT_NEAR(solution.value.count(), best, 1e-7 * best) << what;
      }
      if (method.name != "local-search") continue;
      ++searched;
      if (solution.value.count() <= best * (1 + 1e-9)) ++exact;
    }
  }
  EXPECT_GE(exact, searched * 95 / 100) << "local search finds the optimum of nearly all small problems";
  EXPECT_EQ(infeasible > 0, caps);
}

TEST(AssignmentSolvers, LieBetweenBoundAndBruteForce) {
  for (int seed = 1; seed <= testing::rounds(6); ++seed) check_against_brute_force(seed, false, 25);
}

TEST(AssignmentSolvers, LieBetweenBoundAndBruteForceUnderCaps) {
  for (int seed = 1; seed <= testing::rounds(6); ++seed) check_against_brute_force(seed, true, 25);
}

// The makespan of a small 1F1B pipeline: whatever a method balances, its result is the makespan of its bins,
// and its bound does not exceed the best of all assignments.
TEST(AssignmentSolvers, LieBetweenBoundAndBruteForceForTheMakespan) {
  Random random(3);
  for (int round = 0; round < testing::rounds(25); ++round) {
    RandomProblem data(random, 6, false);
    const BinProblem& bins = data.problem;
    const int encoder_dp = bins.shared_encoder ? 1 + static_cast<int>(random.below(2)) : 0;
    const LoadPipeline pipeline = simple_load_pipeline(
        {OrderKind::one_f_one_b, 2 + static_cast<int>(random.below(2)), 1, bins.microbatches()}, 1, bins.dp,
        encoder_dp, 2.0);
    const AssignmentProblem problem{bins, &pipeline, {bins.encoder_s, bins.llm_s}};
    const double best = optimum(problem);
    for (const Method& method : methods()) {
      const std::string what = std::string(method.name) + " round " + std::to_string(round);
      const AssignmentSolution solution = method.solve(problem, {1, 20000});
      expect_valid(problem, solution, what);
      EXPECT_LE(best, solution.value.count() * (1 + 1e-12)) << what;
      EXPECT_LE(solution.bound.count(), best * (1 + 1e-9)) << what;
    }
  }
}

/// A problem too large to solve at once, and the data it refers to. The mean bin holds more than the largest
/// item, so LPT's assignment is not optimal.
struct LargeProblem {
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  AssignmentProblem problem;

  explicit LargeProblem(std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 60; ++i) {
      encoder_s.push_back(random.uniform());
      llm_s.push_back(std::pow(20.0, random.uniform()));
    }
    problem.bins = {encoder_s, llm_s, 10, 2, true};
  }
  LargeProblem(const LargeProblem&) = delete;
};

/// An ordinary batch: LLM times that span a factor of twenty, and encoder work that is a part of them.
struct OrdinaryBatch {
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  BinProblem bins;
  LoadPipeline pipeline;

  explicit OrdinaryBatch(std::uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 96; ++i) {
      llm_s.push_back(std::pow(20.0, random.uniform()));
      encoder_s.push_back(llm_s.back() * random.uniform() / 2);
    }
    bins = {encoder_s, llm_s, 16, 2};
    pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 3, 1, bins.microbatches()}, 1, bins.dp, 0, 2.0);
  }
  OrdinaryBatch(const OrdinaryBatch&) = delete;

  AssignmentProblem largest_load() const { return {bins}; }
  AssignmentProblem makespan() const { return {bins, &pipeline, {encoder_s, llm_s}}; }
};

// An assignment may be valid but useless. On ordinary batches, a method that considers costs is at most a
// little worse than LPT. Methods that ignore costs are far worse, so the limit is meaningful.
TEST(AssignmentSolvers, ThatMinimizeAreAtMostALittleWorseThanLpt) {
  constexpr double kLittle = 1.1;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const OrdinaryBatch batch(seed);
    for (const AssignmentProblem& problem : {batch.largest_load(), batch.makespan()}) {
      const double most = kLittle * find_method("lpt").solve(problem, {}).value.count();
      for (const Method& method : methods()) {
        const SolveLimits limits{1, method.budget == Budget::nodes ? 5 : 2000};
        const double value = method.solve(problem, limits).value.count();
        const std::string what = std::string(method.name) + " seed " + std::to_string(seed) +
                                 (problem.pipeline == nullptr ? "" : " makespan");
        if (method.minimizes) {
          EXPECT_LE(value, most) << what;
        } else if (problem.pipeline == nullptr || method.order_bins == nullptr) {
          EXPECT_GT(value, most) << what;  // an order of bins for the makespan may make up for them
        }
      }
    }
  }
}

TEST(AssignmentSolvers, SameSeedAndStepsGiveTheSameResultInEveryThread) {
  const LargeProblem data(4);
  for (const Method& method : methods()) {
    const SolveLimits limits{7, method.budget == Budget::nodes ? 5 : 30000};
    const AssignmentSolution first = method.solve(data.problem, limits);
    std::vector<int> same(8, 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        const AssignmentSolution again = method.solve(data.problem, limits);
        same[t] = again.bin == first.bin && again.bound.count() == first.bound.count() &&
                  again.status == first.status;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(same, std::vector<int>(8, 1)) << method.name;
  }
}

TEST(AssignmentSolvers, SeedsAndStreamsAreDifferentShuffles) {
  const LargeProblem data(4);
  const Method& method = find_method("random");
  SolveLimits other{7};
  other.stream = 1;
  EXPECT_NE(method.solve(data.problem, {7}).bin, method.solve(data.problem, {8}).bin);
  EXPECT_NE(method.solve(data.problem, {7}).bin, method.solve(data.problem, other).bin);
}

/// Counts the assignments that a solver reported, each better than the one before, the last as good as its
/// result.
int count_reports(const Method& method, const AssignmentProblem& problem) {
  SolveLimits limits{1, method.budget == Budget::nodes ? 5 : 30000};
  int reports = 0;
  double least = 1e300;
  limits.improved = [&](std::span<const std::int32_t> bin, double objective) {
    EXPECT_LT(objective, least) << method.name;
    EXPECT_DOUBLE_EQ(objective, problem.objective(bin)) << method.name;
    least = objective;
    ++reports;
  };
  const double found = method.solve(problem, limits).value.count();
  if (reports > 0) {
    EXPECT_NEAR(found, least, 1e-12) << method.name;
  }
  return reports;
}

TEST(AssignmentSolvers, ReportOnlyBetterAssignments) {
  const LargeProblem data(5);
  const BinProblem& bins = data.problem.bins;
  const PipelineShape shape{OrderKind::one_f_one_b, 3, 1, bins.microbatches()};
  const LoadPipeline pipeline = simple_load_pipeline(shape, 1, bins.dp, 1, 2.0);
  const AssignmentProblem makespan{bins, &pipeline, {bins.encoder_s, bins.llm_s}};
  for (const Method& method : methods()) {
    const bool searches = method.budget == Budget::steps;
    // The start of a search and at least one better assignment.
    EXPECT_GE(count_reports(method, data.problem), searches ? 2 : 0) << method.name;
    EXPECT_GE(count_reports(method, makespan), method.find_makespan != nullptr ? 2 : 1) << method.name;
  }
}

TEST(AssignmentSolvers, ARequestedStopLeavesAWholeAssignment) {
  const LargeProblem data(6);
  std::stop_source stop;
  stop.request_stop();
  for (const Method& method : methods()) {
    SolveLimits limits{1};
    limits.steps = std::int64_t{1} << 60;  // hours, if the stop were ignored
    limits.stop = stop.get_token();
    expect_valid(data.problem, method.solve(data.problem, limits), std::string(method.name));
  }
}

TEST(AssignmentSolvers, ATimeLimitLeavesAWholeAssignment) {
  const LargeProblem data(6);
  for (const Method& method : methods()) {
    SolveLimits limits{1};
    limits.time = Seconds(0.02);
    const AssignmentSolution solution = method.solve(data.problem, limits);
    expect_valid(data.problem, solution, std::string(method.name));
  }
}

TEST(AssignmentSolvers, NameTheItemThatIsTooLarge) {
  const std::vector<double> time(3, 1.0);
  const std::vector<double> tokens = {5, 9000, 7};
  const std::vector<std::string> names = {"a", "b", "c"};
  AssignmentProblem problem{{time, time, 2}};
  problem.bins.caps.push_back({"LLM tokens", tokens, 8192});
  for (const Method& method : methods()) {
    problem.bins.names = {};
    EXPECT_EQ(method.solve(problem, {}).reason, "item 1 has 9000 LLM tokens, but the cap is 8192");
    problem.bins.names = names;
    const AssignmentSolution solution = method.solve(problem, {});
    EXPECT_EQ(solution.status, ScheduleStatus::infeasible);
    EXPECT_EQ(solution.reason, "item 1 ('b') has 9000 LLM tokens, but the cap is 8192");
  }
}

TEST(AssignmentSolvers, GiveTheReasonOfAFallback) {
  // Alternating between two bins gives 3 and 3 tokens, then 1 and 1. With 4 tokens each, as 3 + 1, none
  // exceeds the cap.
  const std::vector<double> time = {1, 1, 1, 1};
  const std::vector<double> tokens = {3, 3, 1, 1};
  AssignmentProblem problem{{time, time, 2}};
  problem.bins.caps.push_back({"tokens", tokens, 4});
  Method blind = find_method("sequential");
  blind.name = "blind";
  blind.find_bins = [](const BinProblem&, const SolveLimits&) {
    return AssignmentSolution{{}, {0, 0, 1, 1}};
  };
  const AssignmentSolution solution = blind.solve(problem, {});
  EXPECT_EQ(solution.status, ScheduleStatus::fallback);
  EXPECT_EQ(solution.reason, "blind breaks a cap: tokens of microbatches 0 to 0 on dp rank 0: 6, at most 4");
  EXPECT_NE(solution.bin[0], solution.bin[1]);
}

// A bound with longer backward passes exceeds the makespan of any assignment: it proves nothing.
TEST(AssignmentSolvers, ABoundAboveTheMakespanProvesNothing) {
  Random random(6);
  const RandomItems items(random, 8, false);
  const BinProblem bins{items.encoder_s, items.llm_s, 4};
  const auto pipeline = [&](double backward) {
    return simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 4}, 1, 1, 0, backward);
  };
  const LoadPipeline searched = pipeline(2);
  MakespanBounds bounds(pipeline(20));
  const AssignmentProblem problem{bins, &searched, {items.encoder_s, items.llm_s}, &bounds};
  for (const Method& method : methods()) {
    const AssignmentSolution solution = method.solve(problem, {1});
    EXPECT_LT(solution.value.count(), bounds.bound(problem.features).seconds) << method.name;
    EXPECT_EQ(solution.bound.count(), solution.value.count()) << method.name;
    EXPECT_EQ(solution.status, ScheduleStatus::heuristic) << method.name;
  }
}

// "auto" gives the integer program a number of nodes of its own, not the steps of a search.
TEST(AssignmentSolvers, StepsAreNotNodes) {
  Random random(7);
  int others = 0;
  for (int round = 0; round < testing::rounds(20); ++round) {
    const RandomItems data(random, 9, false);
    const AssignmentProblem problem{data.problem(3)};
    const AssignmentSolution own = find_method("ilp").solve(problem, {1});
    const AssignmentSolution one = find_method("ilp").solve(problem, {1, 1});
    const AssignmentSolution found = find_method("auto").solve(problem, {1, 1});
    EXPECT_EQ(found.bound.count(), own.bound.count()) << round;
    EXPECT_EQ(found.status, own.status) << round;
    if (one.status != own.status) ++others;
  }
  EXPECT_GT(others, 0);  // otherwise the test shows nothing
}

/// The bins of a solution after arrange_bins().
std::vector<std::int32_t> arranged(const BinProblem& problem, std::vector<std::int32_t> bin) {
  arrange_bins(problem, bin);
  return bin;
}

TEST(AssignmentSolvers, LeaveBinsInTheRequestedOrder) {
  const LargeProblem data(8);
  const BinProblem& bins = data.problem.bins;
  int moved = 0;
  for (const Method& method : methods()) {
    SolveLimits limits{3, method.budget == Budget::nodes ? 5 : 30000};
    const AssignmentSolution own = method.solve(data.problem, limits);
    limits.bin_order = BinOrder::solver;
    const AssignmentSolution found = method.solve(data.problem, limits);
    limits.bin_order = BinOrder::alike;
    const AssignmentSolution alike = method.solve(data.problem, limits);
    EXPECT_EQ(found.bin, method.find_bins(bins, limits).bin) << method.name;
    EXPECT_EQ(alike.bin, arranged(bins, found.bin)) << method.name;
    EXPECT_EQ(own.bin, method.minimizes ? alike.bin : found.bin) << method.name;
    EXPECT_DOUBLE_EQ(alike.value.count(), found.value.count()) << method.name;
    moved += alike.bin != found.bin ? 1 : 0;
  }
  EXPECT_EQ(moved, static_cast<int>(methods().size()));
}

// A search for the makespan has its own order; the other methods balance the bins of their own objective.
TEST(AssignmentSolvers, BalanceBinsIfTheyCannotSearchTheMakespan) {
  const LargeProblem data(8);
  const BinProblem& bins = data.problem.bins;
  const LoadPipeline pipeline =
      simple_load_pipeline({OrderKind::one_f_one_b, 3, 1, bins.microbatches()}, 1, bins.dp, 1, 2.0);
  const AssignmentProblem makespan{bins, &pipeline, {bins.encoder_s, bins.llm_s}};
  for (const Method& method : methods()) {
    SolveLimits limits{3, method.budget == Budget::nodes ? 5 : 300};
    if (method.order_bins != nullptr) limits.bin_order = BinOrder::solver;  // its own order is for makespans
    const AssignmentSolution solution = method.solve(makespan, limits);
    if (method.find_makespan != nullptr) {
      for (const BinOrder order : all_of<BinOrder>()) {
        limits.bin_order = order;
        EXPECT_EQ(method.solve(makespan, limits).bin, solution.bin) << method.name;
      }
      continue;
    }
    AssignmentProblem own{bins};
    own.bins.shared_encoder = method.objective != Objective::published;
    EXPECT_EQ(solution.bin, method.solve(own, limits).bin) << method.name;
    EXPECT_NE(solution.status, ScheduleStatus::optimal) << method.name << ": of the makespan";
  }
}

TEST(AssignmentSolvers, RejectFewerItemsThanBins) {
  const std::vector<double> time(2, 1.0);
  for (const Method& method : methods()) {
    AssignmentProblem problem{{time, time, 3}};
    EXPECT_THROW(method.solve(problem, {}), Error) << method.name;
    problem.bins.allow_empty = true;
    expect_valid(problem, method.solve(problem, {}), std::string(method.name));
  }
}

}  // namespace assignment_solvers_test
}  // namespace dflop
