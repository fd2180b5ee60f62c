#include "solver/bin_solvers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "core/error.hpp"
#include "core/random.hpp"
#include "solver/bin_order.hpp"
#include "solver/cap_table.hpp"
#include "solver/ilp.hpp"
#include "solver/in_order.hpp"
#include "solver/karmarkar_karp.hpp"
#include "solver/local_search.hpp"
#include "solver/lpt.hpp"
#include "solver/makespan_bound.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

/// What solvers of bins have in common: caps, order of bins, objective and bound.
class BinSolver : public AssignmentSolver {
 public:
  explicit BinSolver(std::string_view name) : name_(name) {}
  std::string_view name() const final { return name_; }

  AssignmentSolution solve(const AssignmentProblem& problem, const SolveLimits& limits) const final {
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

 protected:
  /// Bins for the largest load; without any where none was found. May break caps.
  virtual BinSolution find(const BinProblem& problem, const SolveLimits& limits) const = 0;
  virtual bool looks_at_costs() const { return true; }

 private:
  static void require_enough_items(const BinProblem& problem) {
    if (problem.allow_empty || problem.items() >= static_cast<std::size_t>(problem.bins)) return;
    throw Error(ErrorKind::input, std::to_string(problem.items()) + " items cannot fill " +
                                      std::to_string(problem.bins) + " bins");
  }

  void fill(const AssignmentProblem& problem, const SolveLimits& limits, AssignmentSolution& solution) const {
    SolveLimits inner = limits;
    if (problem.pipeline != nullptr) inner.improved = nullptr;
    BinSolution found = find(problem.bins, inner);
    if (found.status == ScheduleStatus::infeasible) {
      solution.status = found.status;
      solution.reason = std::string(name_) + ": " + found.reason;
      return;
    }
    const auto broken = found.bin.empty() ? std::optional<std::string>("no bin with room for an item")
                                          : broken_cap(problem.bins, found.bin);
    if (broken && problem.bins.items() > 0) {
      found.bin = obey_caps(problem.bins, limits);
      found.status = found.bin.empty() ? ScheduleStatus::infeasible : ScheduleStatus::fallback;
      solution.reason = std::string(name_) + " breaks a cap: " + *broken;
      if (found.bin.empty()) {
        solution.status = ScheduleStatus::infeasible;
        solution.reason += "; no assignment that obeys all caps was found";
        return;
      }
    }
    if (looks_at_costs()) arrange(problem.bins, found.bin);
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
                                                   name_, solution.objective_s, found.bound_s));
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

  std::string_view name_;
};

class InOrderSolver final : public BinSolver {
 public:
  InOrderSolver(std::string_view name, bool shuffled) : BinSolver(name), shuffled_(shuffled) {}

 private:
  bool looks_at_costs() const override { return false; }
  BinSolution find(const BinProblem& problem, const SolveLimits& limits) const override {
    std::vector<std::int32_t> order(problem.items());
    std::iota(order.begin(), order.end(), 0);
    if (shuffled_) Random(limits.seed, limits.stream).shuffle(std::span(order));
    return {place_in_order(problem, order), lower_bound(problem)};
  }

  bool shuffled_;
};

class LptSolver final : public BinSolver {
 public:
  using BinSolver::BinSolver;

 private:
  BinSolution find(const BinProblem& problem, const SolveLimits&) const override {
    return {lpt(problem), lower_bound(problem)};
  }
};

class KarmarkarKarpSolver final : public BinSolver {
 public:
  using BinSolver::BinSolver;

 private:
  BinSolution find(const BinProblem& problem, const SolveLimits&) const override {
    return {karmarkar_karp(problem), lower_bound(problem)};
  }
};

class LocalSearchSolver final : public BinSolver {
 public:
  using BinSolver::BinSolver;

 private:
  BinSolution find(const BinProblem& problem, const SolveLimits& limits) const override {
    return local_search(problem, limits);
  }
};

class IlpSolver final : public BinSolver {
 public:
  using BinSolver::BinSolver;

 private:
  BinSolution find(const BinProblem& problem, const SolveLimits& limits) const override {
    return solve_ilp(problem, limits);
  }
};

}  // namespace

std::unique_ptr<AssignmentSolver> make_bin_solver(std::string_view name) {
  if (name == "random") return std::make_unique<InOrderSolver>("random", true);
  if (name == "sequential") return std::make_unique<InOrderSolver>("sequential", false);
  if (name == "lpt") return std::make_unique<LptSolver>("lpt");
  if (name == "karmarkar-karp") return std::make_unique<KarmarkarKarpSolver>("karmarkar-karp");
  if (name == "local-search") return std::make_unique<LocalSearchSolver>("local-search");
  if (name == "ilp") return std::make_unique<IlpSolver>("ilp");
  return nullptr;
}

std::vector<std::string_view> bin_solver_names() {
  return {"random", "sequential", "lpt", "karmarkar-karp", "local-search", "ilp"};
}

}  // namespace dflop
