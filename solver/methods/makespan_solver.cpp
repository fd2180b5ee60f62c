#include "solver/methods/makespan_solver.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "core/support/random.hpp"
#include "solver/makespan/bound.hpp"
#include "solver/makespan/kernel.hpp"
#include "solver/makespan/search.hpp"
#include "solver/makespan/start.hpp"
#include "solver/methods/bin_solvers.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

/// Steps without limits.
constexpr std::int64_t kSteps = 4096;
/// Part of the budget for the mean replica.
constexpr double kStartPart = 0.5;
/// Items x bins up to which an integer program of balanced bins is solved in moments.
constexpr std::size_t kSmallCells = 512;

/// One call: the best so far, and what is left of the budget.
class Run {
 public:
  Run(const AssignmentProblem& problem, const SolveLimits& limits)
      : problem_(problem), limits_(limits), random_(limits.seed, limits.stream) {}

  AssignmentSolution solve() {
    SolveLimits quick = limits_;
    quick.improved = nullptr;
    AssignmentSolution solution = make_bin_solver("lpt")->solve(problem_, quick);
    if (solution.status != ScheduleStatus::infeasible) {
      solution.reason.clear();
      improve(std::move(solution.bin));
      finish(solution);
    }
    solution.time = Clock::now() - begin_;
    return solution;
  }

 private:
  void improve(std::vector<std::int32_t> first) {
    take(std::move(first));
    set_bound();
    const MakespanKernel kernel(*problem_.pipeline);
    if (!met() && problem_.bins.dp > 1) {
      std::vector<std::int32_t> start = mean_replica_start(problem_, random_, control(kStartPart));
      if (start.empty()) used_ = 0;
      take(std::move(start));
    }
    if (met()) return;
    std::vector<std::int32_t> bin = best_;
    SearchControl search = control(1.0);
    search.improved = [&](std::span<const std::int32_t> better, double) {
      if (limits_.improved) take({better.begin(), better.end()});
    };
    makespan_search(problem_, kernel, random_, search, bin);
    take(std::move(bin));
  }

  void take(std::vector<std::int32_t> bin) {
    if (bin.empty() && problem_.bins.items() > 0) return;
    const double objective_s = problem_.objective(bin);
    if (objective_s >= best_s_) return;
    best_s_ = objective_s;
    best_ = std::move(bin);
    if (limits_.improved) limits_.improved(best_, best_s_);
  }

  void set_bound() {
    bound_ = problem_.bounds != nullptr
                 ? problem_.bounds->bound(problem_.features)
                 : MakespanBounds(*problem_.pipeline, BoundKind::simple).bound(problem_.features);
  }

  bool met() const { return meets_bound(best_s_, bound_.seconds) || stopped(); }

  bool stopped() const {
    return limits_.stop.stop_requested() || (limits_.time && Clock::now() - begin_ >= *limits_.time);
  }

  std::int64_t steps() const { return limits_.steps > 0 ? limits_.steps : kSteps; }

  /// From now until this part of the budget is used.
  SearchControl control(double until) {
    SearchControl control;
    control.enough_s = bound_.seconds * (1 + 1e-9);
    control.used = [this, until, from = Clock::now()] {
      if (stopped()) return 1.0;
      if (!limits_.time) return 0.0;
      const Seconds all = *limits_.time * until - (from - begin_);
      return all.count() > 0 ? (Clock::now() - from) / all : 1.0;
    };
    const auto part = static_cast<std::int64_t>(until * static_cast<double>(steps()));
    control.steps = limits_.time ? std::numeric_limits<std::int64_t>::max() : part - used_;
    used_ = part;
    return control;
  }

  void finish(AssignmentSolution& solution) {
    solution.bin = best_;
    solution.objective_s = best_s_;
    // The bound is that of a run; above the makespan of a pipeline that is only near it, it proves nothing.
    const bool below = meets_bound(bound_.seconds, best_s_);
    const bool met = meets_bound(best_s_, bound_.seconds);
    solution.bound_s = std::min(bound_.seconds, best_s_);
    solution.bound_kind = bound_.kind;
    solution.status = met && below   ? ScheduleStatus::optimal
                      : met          ? ScheduleStatus::heuristic
                      : limits_.time ? ScheduleStatus::time_limit
                                     : ScheduleStatus::node_limit;
  }

  const AssignmentProblem& problem_;
  const SolveLimits& limits_;
  Clock::time_point begin_ = Clock::now();
  Random random_;
  std::int64_t used_ = 0;  ///< steps given away
  std::vector<std::int32_t> best_;
  double best_s_ = std::numeric_limits<double>::infinity();
  MakespanBound bound_;
};

class MakespanSolver final : public AssignmentSolver {
 public:
  std::string_view name() const override { return "makespan"; }
  AssignmentSolution solve(const AssignmentProblem& problem, const SolveLimits& limits) const override {
    if (problem.pipeline == nullptr) return make_bin_solver("local-search")->solve(problem, limits);
    return Run(problem, limits).solve();
  }
};

class AutoSolver final : public AssignmentSolver {
 public:
  std::string_view name() const override { return "auto"; }
  AssignmentSolution solve(const AssignmentProblem& problem, const SolveLimits& limits) const override {
    if (problem.pipeline != nullptr) return Run(problem, limits).solve();
    const bool small = problem.bins.items() * problem.bins.bins <= kSmallCells;
    if (!small || limits.time) return make_bin_solver("local-search")->solve(problem, limits);
    SolveLimits nodes = limits;
    nodes.steps = 0;  // steps of a search are no branch-and-bound nodes
    return make_bin_solver("ilp")->solve(problem, nodes);
  }
};

}  // namespace

std::unique_ptr<AssignmentSolver> make_makespan_solver(std::string_view name) {
  if (name == "makespan") return std::make_unique<MakespanSolver>();
  if (name == "auto") return std::make_unique<AutoSolver>();
  return nullptr;
}

std::vector<std::string_view> makespan_solver_names() {
  return {"makespan", "auto"};
}

}  // namespace dflop
