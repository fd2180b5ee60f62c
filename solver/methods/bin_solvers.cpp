#include "solver/methods/bin_solvers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "solver/bins/cap_table.hpp"
#include "solver/bins/ilp.hpp"
#include "solver/bins/in_order.hpp"
#include "solver/bins/karmarkar_karp.hpp"
#include "solver/bins/local_search.hpp"
#include "solver/bins/lpt.hpp"
#include "solver/bins/order.hpp"
#include "solver/makespan/bound.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

/// One way to fill bins.
struct Method {
  std::string_view name;
  bool looks_at_costs;
  /// Bins for the largest load; without any where none was found. May break caps.
  BinSolution (*find)(const BinProblem& problem, const SolveLimits& limits);
};

BinSolution in_order(const BinProblem& problem, std::span<const std::int32_t> order) {
  return {place_in_order(problem, order), lower_bound(problem)};
}

BinSolution find_random(const BinProblem& problem, const SolveLimits& limits) {
  std::vector<std::int32_t> order(problem.items());
  std::iota(order.begin(), order.end(), 0);
  Random(limits.seed, limits.stream).shuffle(std::span(order));
  return in_order(problem, order);
}

BinSolution find_sequential(const BinProblem& problem, const SolveLimits&) {
  std::vector<std::int32_t> order(problem.items());
  std::iota(order.begin(), order.end(), 0);
  return in_order(problem, order);
}

BinSolution find_lpt(const BinProblem& problem, const SolveLimits&) {
  return {lpt(problem), lower_bound(problem)};
}

BinSolution find_karmarkar_karp(const BinProblem& problem, const SolveLimits&) {
  return {karmarkar_karp(problem), lower_bound(problem)};
}

constexpr std::array kMethods{
    Method{"random", false, find_random},
    Method{"sequential", false, find_sequential},
    Method{"lpt", true, find_lpt},
    Method{"karmarkar-karp", true, find_karmarkar_karp},
    Method{"local-search", true, local_search},
    Method{"ilp", true, solve_ilp},
};

/// What the methods have in common: caps, order of bins, objective and bound.
class BinSolver final : public AssignmentSolver {
 public:
  explicit BinSolver(const Method& method) : method_(method) {}
  std::string_view name() const override { return method_.name; }

  AssignmentSolution solve(const AssignmentProblem& problem, const SolveLimits& limits) const override {
    const Clock::time_point begin = Clock::now();
    require_enough_items(problem.bins);
    AssignmentSolution solution;
    if (auto reason = impossible_cap(problem.bins)) {
      solution.status = ScheduleStatus::infeasible;
      solution.reason = std::move(*reason);
    } else {
      fill(problem, limits, solution);
    }
    solution.time = Clock::now() - begin;
    return solution;
  }

 private:
  static void require_enough_items(const BinProblem& problem) {
    if (problem.allow_empty || problem.items() >= static_cast<std::size_t>(problem.bins)) return;
    throw Error(ErrorKind::input, std::to_string(problem.items()) + " items cannot fill " +
                                      std::to_string(problem.bins) + " bins");
  }

  void fill(const AssignmentProblem& problem, const SolveLimits& limits, AssignmentSolution& solution) const {
    SolveLimits inner = limits;
    if (problem.pipeline != nullptr) inner.improved = nullptr;
    BinSolution found = method_.find(problem.bins, inner);
    if (found.status == ScheduleStatus::infeasible) {
      solution.status = found.status;
      solution.reason = std::string(method_.name) + ": " + found.reason;
      return;
    }
    const auto broken = found.bin.empty() ? std::optional<std::string>("no bin with room for an item")
                                          : broken_cap(problem.bins, found.bin);
    if (broken && problem.bins.items() > 0) {
      found.bin = obey_caps(problem.bins, limits);
      found.status = found.bin.empty() ? ScheduleStatus::infeasible : ScheduleStatus::fallback;
      solution.reason = std::string(method_.name) + " breaks a cap: " + *broken;
      if (found.bin.empty()) {
        solution.status = ScheduleStatus::infeasible;
        solution.reason += "; no assignment that obeys all caps was found";
        return;
      }
    }
    if (method_.looks_at_costs) arrange(problem.bins, found.bin);
    finish(problem, std::move(found), solution);
    if (limits.improved && (problem.pipeline != nullptr || broken))
      limits.improved(solution.bin, solution.objective_s);
  }

  /// Puts bins in order where that breaks no cap on microbatches in flight.
  static void arrange(const BinProblem& problem, std::vector<std::int32_t>& bin) {
    std::vector<std::int32_t> arranged = bin;
    arrange_bins(problem, arranged);
    if (!broken_cap(problem, arranged)) bin = std::move(arranged);
  }

  void finish(const AssignmentProblem& problem, BinSolution found, AssignmentSolution& solution) const {
    solution.objective_s = problem.objective(found.bin);
    if (problem.pipeline != nullptr) {
      const MakespanBound bound =
          problem.bounds != nullptr
              ? problem.bounds->bound(problem.features)
              : MakespanBounds(*problem.pipeline, BoundKind::simple).bound(problem.features);
      found.bound_s = bound.seconds;
      found.bound_kind = bound.kind;
      if (found.status != ScheduleStatus::fallback) found.status = ScheduleStatus::heuristic;
    }
    const bool below = meets_bound(found.bound_s, solution.objective_s);
    if (!below && problem.pipeline == nullptr) {
      throw Error(ErrorKind::internal, fmt::format("{}: a largest load of {} s below its bound of {} s",
                                                   method_.name, solution.objective_s, found.bound_s));
    }
    // Sums in another order may round to above the objective; the bound of a makespan is that of a run, and
    // may be further above the pipeline's, which then proves nothing.
    solution.bound_s = std::min(found.bound_s, solution.objective_s);
    solution.bound_kind = found.bound_kind;
    const bool proven = below && meets_bound(solution.objective_s, found.bound_s);
    solution.status = proven ? ScheduleStatus::optimal : found.status;
    if (solution.status != ScheduleStatus::fallback) {
      solution.reason.clear();
    } else if (solution.reason.empty()) {
      solution.reason = std::move(found.reason);
    }
    solution.bin = std::move(found.bin);
  }

  const Method& method_;
};

}  // namespace

std::unique_ptr<AssignmentSolver> make_bin_solver(std::string_view name) {
  const auto method =
      std::find_if(kMethods.begin(), kMethods.end(), [&](const Method& m) { return m.name == name; });
  return method == kMethods.end() ? nullptr : std::make_unique<BinSolver>(*method);
}

std::vector<std::string_view> bin_solver_names() {
  std::vector<std::string_view> names;
  for (const Method& method : kMethods) names.push_back(method.name);
  return names;
}

}  // namespace dflop
