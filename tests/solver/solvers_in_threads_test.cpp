// Every assignment solver under many threads, and bounds that they share. Most valuable with the thread
// sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>

#include "solver/makespan/bound.hpp"
#include "solver/schedulers/methods.hpp"
#include "tests/solver/fixtures.hpp"
#include "tests/solver/threads.hpp"

namespace dflop {
namespace solvers_in_threads_test {

using testing::has_child;
using testing::in_threads;
using testing::open_files;

constexpr std::size_t kTimes = testing::integer_programs(1000);

/// 9 items into 2 dp ranks x 2 microbatches, for the largest load or for the makespan of 1F1B on 3 ranks,
/// with all objects that the problem refers to. The bound is not met immediately, so every solver has to
/// work.
struct SharedProblem {
  testing::RandomItems items;
  LoadPipeline pipeline;
  MakespanBounds bounds;
  AssignmentProblem problem;

  SharedProblem(Random& random, bool makespan)
      : items(random, 9, false),
        pipeline(simple_load_pipeline({OrderKind::one_f_one_b, 3, 1, 2}, 1, 2, 1, 2.0)),
        bounds(pipeline) {
    problem.bins = {items.encoder_s, items.llm_s, 4, 2, true};
    if (!makespan) return;
    problem.pipeline = &pipeline;
    problem.features = {items.encoder_s, items.llm_s};
    problem.bounds = &bounds;
    bounds.prepare(problem.features);
  }
  SharedProblem(const SharedProblem&) = delete;
};

using SharedProblems = std::vector<std::unique_ptr<SharedProblem>>;

SharedProblems shared_problems() {
  Random random(21);
  SharedProblems problems;
  for (int i = 0; i < 40; ++i) problems.push_back(std::make_unique<SharedProblem>(random, i % 2 == 1));
  return problems;
}

/// A step of an integer program is a node.
SolveLimits few_steps(const Method& method, const AssignmentProblem& problem) {
  const bool integer =
      method.budget == Budget::nodes || (method.name == "auto" && problem.pipeline == nullptr);
  return {3, integer ? 2 : 40};
}

bool whole(const AssignmentProblem& problem, const AssignmentSolution& solution) {
  const std::set<std::int32_t> used(solution.bin.begin(), solution.bin.end());
  return solution.bin.size() == problem.bins.items() &&
         used.size() == static_cast<std::size_t>(problem.bins.bins) && *used.begin() == 0 &&
         *used.rbegin() == problem.bins.bins - 1 && solution.bound.count() <= solution.value.count();
}

bool same(const AssignmentSolution& a, const AssignmentSolution& b) {
  return a.bin == b.bin && a.value.count() == b.value.count() && a.bound.count() == b.bound.count() &&
         a.status == b.status;
}

/// Each solver finds its single-threaded result again, kTimes times in each of 8 threads that share solver
/// and problems.
TEST(SolversInThreads, LoseNothing) {
  const SharedProblems problems = shared_problems();
  for (const Method& method : methods()) {
    std::vector<AssignmentSolution> alone;
    int unproven = 0;
    for (const auto& shared : problems) {
      alone.push_back(method.solve(shared->problem, few_steps(method, shared->problem)));
      ASSERT_TRUE(whole(shared->problem, alone.back())) << method.name;
      unproven += alone.back().status != ScheduleStatus::optimal;
    }
    EXPECT_GT(unproven, 5) << method.name << " must not stop before its search";
    const std::ptrdiff_t files = open_files();
    std::atomic<std::size_t> next{0};
    std::atomic<std::size_t> right{0};
    in_threads([&](int) {
      for (std::size_t k = next++; k < kTimes; k = next++) {
        const std::size_t p = k % problems.size();
        const AssignmentProblem& problem = problems[p]->problem;
        right += same(method.solve(problem, few_steps(method, problem)), alone[p]) ? 1 : 0;
      }
    });
    EXPECT_EQ(right, kTimes) << method.name;
    EXPECT_EQ(open_files(), files) << method.name;
    EXPECT_FALSE(has_child()) << method.name;
  }
}

/// Solvers that are told to stop at any moment, or run out of time, still return a complete assignment.
TEST(SolversInThreads, StopAtAnyMoment) {
  const SharedProblems problems = shared_problems();
  for (const Method& method : methods()) {
    const std::ptrdiff_t files = open_files();
    std::atomic<int> right{0};
    in_threads([&](int t) {
      Random random(5, static_cast<std::uint64_t>(t));
      for (int k = 0; k < 5; ++k) {
        const AssignmentProblem& problem = problems[random.below(problems.size())]->problem;
        std::stop_source stop;
        SolveLimits limits{3, std::int64_t{1} << 40};
        limits.stop = stop.get_token();
        if (k % 2 == 0) limits.time = Seconds(2e-3 * random.uniform());
        const auto pause = std::chrono::microseconds(random.below(2000));
        const std::jthread asks([&stop, pause] {
          std::this_thread::sleep_for(pause);
          stop.request_stop();
        });
        right += whole(problem, method.solve(problem, limits)) ? 1 : 0;
      }
    });
    EXPECT_EQ(right, 8 * 5) << method.name;
    EXPECT_EQ(open_files(), files) << method.name;
    EXPECT_FALSE(has_child()) << method.name;
  }
}

/// Threads add paths of their own batches to bounds that others read. A bound only rises, finally to the
/// bound of all paths, and never exceeds the makespan of an assignment.
TEST(SolversInThreads, ShareTheBoundsOfAPipeline) {
  const SharedProblems problems = shared_problems();
  MakespanBounds one_by_one(problems[1]->pipeline);
  std::vector<const AssignmentProblem*> makespans;
  for (std::size_t p = 1; p < problems.size(); p += 2) makespans.push_back(&problems[p]->problem);
  for (const AssignmentProblem* problem : makespans) one_by_one.prepare(problem->features);
  std::vector<double> known;
  for (const AssignmentProblem* problem : makespans) {
    const std::vector<std::int32_t> bin = find_method("lpt").solve(*problem, {}).bin;
    known.push_back(problem->objective(bin));
  }
  MakespanBounds bounds(problems[1]->pipeline);
  std::atomic<std::size_t> next{0};
  std::atomic<int> wrong{0};
  in_threads([&](int) {
    for (std::size_t k = next++; k < makespans.size(); k = next++) {
      const double before = bounds.bound(makespans[k]->features).seconds;
      bounds.prepare(makespans[k]->features);
      const double after = bounds.bound(makespans[k]->features).seconds;
      wrong += after < before || after > known[k] ? 1 : 0;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(bounds.flows().size(), makespans.size());
  for (const AssignmentProblem* problem : makespans)
    EXPECT_EQ(bounds.bound(problem->features).seconds, one_by_one.bound(problem->features).seconds);
}

}  // namespace solvers_in_threads_test
}  // namespace dflop
