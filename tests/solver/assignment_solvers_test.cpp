// What every assignment solver promises, run over all of the registry.
#include "solver/assignment_solvers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "core/error.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace {

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

/// The smallest objective over all assignments that obey everything; negative where there is none.
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
  EXPECT_DOUBLE_EQ(solution.objective_s, problem.objective(solution.bin)) << what;
  EXPECT_LE(solution.bound_s, solution.objective_s) << what;
}

/// bound <= optimum <= result, for every solver; exact ones find the optimum.
void check_against_brute_force(std::uint64_t seed, bool caps, int rounds) {
  Random random(seed);
  int infeasible = 0;
  int searched = 0;
  int exact = 0;
  for (int round = 0; round < rounds; ++round) {
    const RandomProblem data(random, 7, caps);
    const AssignmentProblem problem{data.problem};
    const double best = optimum(problem);
    for (const std::string_view name : assignment_solver_names()) {
      const std::string what = std::string(name) + " round " + std::to_string(round);
      const AssignmentSolution solution = make_assignment_solver(name)->solve(problem, {1, 20000});
      if (solution.status == ScheduleStatus::infeasible) {
        EXPECT_NE(solution.reason, "") << what;
        EXPECT_TRUE(solution.bin.empty()) << what;
        if (name == "local-search" && best >= 0) ADD_FAILURE() << "missed a feasible assignment, " << what;
        ++infeasible;
        continue;
      }
      ASSERT_GE(best, 0) << what;
      expect_valid(problem, solution, what);
      EXPECT_LE(best, solution.objective_s * (1 + 1e-12)) << what;
      EXPECT_LE(solution.bound_s, best * (1 + 1e-9)) << what;
      if (solution.status == ScheduleStatus::optimal)
        EXPECT_NEAR(solution.objective_s, best, 1e-9 * best) << what;
      if (name == "ilp" && solution.status != ScheduleStatus::fallback)
        EXPECT_NEAR(solution.objective_s, best, 1e-7 * best) << what;
      if (name != "local-search") continue;
      ++searched;
      if (solution.objective_s <= best * (1 + 1e-9)) ++exact;
    }
  }
  EXPECT_GE(exact, searched * 95 / 100) << "local search finds the optimum of nearly all small problems";
  std::cerr << exact << " of " << searched << " infeasible " << infeasible << "\n";
  if (caps) EXPECT_GT(infeasible, 0);
}

TEST(AssignmentSolvers, LieBetweenBoundAndBruteForce) {
  check_against_brute_force(1, false, 150);
}

TEST(AssignmentSolvers, LieBetweenBoundAndBruteForceUnderCaps) {
  check_against_brute_force(2, true, 150);
}

}  // namespace
}  // namespace dflop
