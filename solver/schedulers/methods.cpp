#include "solver/schedulers/methods.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "core/support/clock.hpp"
#include "core/support/did_you_mean.hpp"
#include "core/support/random.hpp"
#include "solver/bins/cap_table.hpp"
#include "solver/bins/group_lpt.hpp"
#include "solver/bins/heuristics.hpp"
#include "solver/bins/ilp.hpp"
#include "solver/bins/local_search.hpp"
#include "solver/makespan/bound.hpp"
#include "solver/makespan/kernel.hpp"
#include "solver/makespan/search.hpp"
#include "solver/schedulers/microbatch_order.hpp"

namespace dflop {
namespace {

/// A search for the makespan without limits takes this many steps, of 16 candidates each, or fewer if its
/// worth is less (SearchWorth). This gives the same result on every machine.
constexpr std::int64_t kMakespanSteps = 4096;
/// However short the iteration, a search takes this many steps.
constexpr std::int64_t kMinSteps = 16;
/// A slow machine, with other programs on its cores, takes up to this long for a step, plus this long for
/// each forward and backward of a replica: four times the measured times (docs/results.md).
constexpr double kStepSeconds = 12e-6;
constexpr double kStepSecondsPerCell = 0.35e-6;
/// This fraction of the budget is for the mean replica.
constexpr double kStartPart = 0.5;

AssignmentSolution bounded(const BinProblem& problem, std::vector<std::int32_t> bin) {
  return {{.bound = Seconds(lower_bound(problem))}, std::move(bin)};
}

/// Divides the shuffled items into bins of equal counts.
AssignmentSolution find_random(const BinProblem& problem, const SolveLimits& limits) {
  return bounded(problem,
                 place_in_order(problem, shuffled_items(problem.items(), limits.seed, limits.stream)));
}

/// Divides the items in their order into bins of equal counts.
AssignmentSolution find_sequential(const BinProblem& problem, const SolveLimits&) {
  return bounded(problem, place_in_order(problem, numbered(problem.items())));
}

AssignmentSolution find_lpt(const BinProblem& problem, const SolveLimits&) {
  return bounded(problem, lpt(problem));
}

AssignmentSolution find_karmarkar_karp(const BinProblem& problem, const SolveLimits&) {
  return bounded(problem, karmarkar_karp(problem));
}

AssignmentSolution find_group_lpt(const BinProblem& problem, const SolveLimits&) {
  return bounded(problem, group_lpt(problem));
}

/// Runs the integer program, with its default limits, if the problem is small and there is no time
/// limit; otherwise the local search.
AssignmentSolution find_auto(const BinProblem& problem, const SolveLimits& limits) {
  const bool small = problem.items() * problem.bins <= kSmallCells;
  if (!small || limits.time) return local_search(problem, limits);
  SolveLimits nodes = limits;
  nodes.steps = 0;  // steps of a search are not branch-and-bound nodes
  return solve_ilp(problem, nodes);
}

MakespanBound makespan_bound(const AssignmentProblem& problem) {
  return problem.bounds != nullptr
             ? problem.bounds->bound(problem.features)
             : MakespanBounds(*problem.pipeline, BoundKind::simple).bound(problem.features);
}

/// A MakespanRun is one search for the smallest makespan. It has the best assignment so far and the rest of
/// the budget. It starts from LPT, either with a microbatch's encoder work shared by its bins or with each
/// bin's own. The fraction kStartPart of the budget is for mean_replica_start(), which searches one replica
/// that represents all.
class MakespanRun {
 public:
  MakespanRun(const AssignmentProblem& problem, const SolveLimits& limits)
      : problem_(problem), limits_(limits), random_(limits.seed, limits.stream) {}

  AssignmentSolution solve() {
    SolveLimits quick = limits_;
    quick.improved = nullptr;
    quick.bin_order.reset();
    AssignmentSolution solution = find_method("lpt").solve(problem_, quick);
    if (!solution.feasible()) return solution;
    solution.reason.clear();
    take(std::move(solution.bin));
    improve(find_method("lpt").solve({problem_.bins}, quick).bin);
    finish(solution);
    return solution;
  }

 private:
  void improve(std::vector<std::int32_t> first) {
    take(std::move(first));
    bound_ = makespan_bound(problem_);
    const auto cells = static_cast<double>(problem_.pipeline->steps.size());
    const double worth_s = limits_.worth_s(best_s_, best_s_ - bound_.seconds);
    const double step_s = kStepSeconds + kStepSecondsPerCell * cells;
    steps_ = limits_.steps_or(kMakespanSteps, worth_s, step_s);
    if (limits_.steps == 0) steps_ = std::max(kMinSteps, steps_);
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

  bool met() const { return best_s_ <= enough_s() || stopped(); }

  /// Returns a value that is good enough: the bound within rounding, or within the gap.
  double enough_s() const { return bound_.seconds * (1 + std::max(1e-9, limits_.enough_gap())); }

  bool stopped() const {
    return limits_.stop.stop_requested() || (limits_.time && watch_.elapsed() >= *limits_.time);
  }

  /// Returns the control of a search from now until this fraction of the budget is used.
  SearchControl control(double until) {
    SearchControl control;
    control.enough_s = enough_s();
    control.used = [this, until, from = watch_.elapsed()] {
      if (stopped()) return 1.0;
      if (!limits_.time) return 0.0;
      const Seconds all = *limits_.time * until - from;
      return all.count() > 0 ? (watch_.elapsed() - from) / all : 1.0;
    };
    const auto part = static_cast<std::int64_t>(until * static_cast<double>(steps_));
    control.steps = limits_.time ? std::numeric_limits<std::int64_t>::max() : part - used_;
    used_ = part;
    return control;
  }

  void finish(AssignmentSolution& solution) {
    solution.bin = best_;
    solution.value = Seconds(best_s_);
    // The bound is for a run. If the pipeline only approximates the run, its makespan may be below the bound,
    // which then proves nothing.
    const bool below = meets_bound(bound_.seconds, best_s_);
    const bool met = meets_bound(best_s_, bound_.seconds);
    solution.bound = Seconds(std::min(bound_.seconds, best_s_));
    solution.bound_kind = bound_.kind;
    solution.status = met && below            ? ScheduleStatus::optimal
                      : best_s_ <= enough_s() ? ScheduleStatus::heuristic
                      : limits_.time          ? ScheduleStatus::time_limit
                                              : ScheduleStatus::node_limit;
  }

  const AssignmentProblem& problem_;
  const SolveLimits& limits_;
  Stopwatch watch_;
  Random random_;
  std::int64_t steps_ = kMakespanSteps;
  std::int64_t used_ = 0;  ///< steps already assigned to searches
  std::vector<std::int32_t> best_;
  double best_s_ = std::numeric_limits<double>::infinity();
  MakespanBound bound_;
};

AssignmentSolution search_makespan(const AssignmentProblem& problem, const SolveLimits& limits) {
  return MakespanRun(problem, limits).solve();
}

/// The table has a row for each method. The method "auto" chooses one of the others. For a makespan it
/// chooses the makespan search, which starts from LPT's result: balancing the bins better first does not pay.
constexpr std::array kMethods{
    Method{"random", Objective::published, Budget::none, false, find_random},
    Method{"sequential", Objective::published, Budget::none, false, find_sequential},
    Method{"lpt", Objective::published, Budget::none, true, find_lpt},
    Method{"karmarkar-karp", Objective::published, Budget::none, true, find_karmarkar_karp},
    Method{"local-search", Objective::bins, Budget::steps, true, local_search},
    Method{"ilp", Objective::published, Budget::nodes, true, solve_ilp},
    Method{"makespan", Objective::makespan, Budget::steps, true, local_search, search_makespan, true},
    Method{"auto", Objective::makespan, Budget::steps, true, find_auto, search_makespan},
    Method{.name = "disttrain",
           .objective = Objective::makespan,
           .budget = Budget::none,
           .minimizes = true,
           .find_bins = find_group_lpt,
           .keeps_objective = true,
           .order_bins = fill_intervals,
           .note = "its order of microbatches follows the paper only from memory"},
    Method{.name = "maestro",
           .objective = Objective::makespan,
           .budget = Budget::none,
           .minimizes = false,
           .find_bins = find_random,
           .keeps_objective = true,
           .order_bins = insert_in_order,
           .note = "only the order of random microbatches"},
};

/// At most this many methods can be registered. The table reserves this many at the start, so that references
/// into it stay valid.
constexpr std::size_t kMaxRegistered = 64;

/// Returns the built-in methods, then the registered ones.
std::vector<Method>& table() {
  // The table is never destroyed, because schedulers that a service has abandoned read it until the process
  // ends.
  static std::vector<Method>& rows = *new std::vector<Method>([] {
    std::vector<Method> first;
    first.reserve(kMethods.size() + kMaxRegistered);
    first.assign(kMethods.begin(), kMethods.end());
    return first;
  }());
  return rows;
}

std::vector<Method>::iterator find_row(std::string_view name) {
  return std::find_if(table().begin(), table().end(), [&](const Method& m) { return m.name == name; });
}

void require_enough_items(const BinProblem& problem) {
  if (problem.allow_empty || problem.items() >= static_cast<std::size_t>(problem.bins)) return;
  refuse_input("", "{} items cannot fill {} bins", problem.items(), problem.bins);
}

AssignmentSolution infeasible(std::string reason) {
  return {{.status = ScheduleStatus::infeasible, .reason = std::move(reason)}};
}

/// Sets the value of a solution of balanced bins, and the bound of the makespan if there is a pipeline.
void rate(const Method& method, const AssignmentProblem& problem, AssignmentSolution& solution) {
  const double value_s = problem.objective(solution.bin);
  double bound_s = solution.bound.count();
  if (problem.pipeline != nullptr) {
    const MakespanBound bound = makespan_bound(problem);
    bound_s = bound.seconds;
    solution.bound_kind = bound.kind;
    if (solution.status != ScheduleStatus::fallback) solution.status = ScheduleStatus::heuristic;
  }
  const bool below = meets_bound(bound_s, value_s);
  if (!below && problem.pipeline == nullptr) {
    throw Error(ErrorKind::internal, fmt::format("{}: a largest load of {} s below its bound of {} s",
                                                 method.name, value_s, bound_s));
  }
  if (below && meets_bound(value_s, bound_s)) solution.status = ScheduleStatus::optimal;
  if (solution.status != ScheduleStatus::fallback) solution.reason.clear();
  solution.value = Seconds(value_s);
  // Rounding may raise the bound above the objective, because it sums in a different order. The bound of a
  // makespan is for a run, and may be even further above the pipeline's makespan; then it proves nothing.
  solution.bound = Seconds(std::min(bound_s, value_s));
}

}  // namespace

AssignmentSolution Method::solve(const AssignmentProblem& problem, const SolveLimits& limits) const {
  if (problem.pipeline != nullptr && find_makespan != nullptr) return find_makespan(problem, limits);
  require_enough_items(problem.bins);
  if (auto reason = impossible_cap(problem.bins)) return infeasible(std::move(*reason));
  SolveLimits inner = limits;
  if (problem.pipeline != nullptr) inner.improved = nullptr;
  BinProblem bins = problem.bins;
  if (problem.pipeline != nullptr && objective == Objective::published) bins.shared_encoder = false;
  AssignmentSolution solution = find_bins(bins, inner);
  if (!solution.feasible()) return infeasible(fmt::format("{}: {}", name, solution.reason));
  const auto broken = solution.bin.empty() ? std::optional<std::string>("no bin has capacity for an item")
                                           : broken_cap(bins, solution.bin);
  if (broken && bins.items() > 0) {
    std::string reason = fmt::format("{} breaks a cap: {}", name, *broken);
    solution.bin = obey_caps(bins, limits);
    if (solution.bin.empty()) return infeasible(reason + "; no assignment that obeys all caps was found");
    solution.status = ScheduleStatus::fallback;
    solution.reason = std::move(reason);
  }
  const BinOrder own = minimizes ? BinOrder::alike : BinOrder::solver;
  if (order_bins != nullptr && problem.pipeline != nullptr && !limits.bin_order) {
    std::vector<std::int32_t> ordered = solution.bin;
    order_bins(problem, ordered);
    if (!broken_cap(bins, ordered)) solution.bin = std::move(ordered);
  } else if (limits.bin_order.value_or(own) == BinOrder::alike) {
    arrange_bins(bins, solution.bin);
  }
  rate(*this, problem, solution);
  if (limits.improved && (problem.pipeline != nullptr || broken))
    limits.improved(solution.bin, solution.value.count());
  return solution;
}

std::span<const Method> methods() {
  return table();
}

const Method& find_method(std::string_view name) {
  const auto known = find_row(name);
  if (known != table().end()) return *known;
  std::vector<std::string_view> names;
  for (const Method& method : table()) names.push_back(method.name);
  throw Error(ErrorKind::usage, fmt::format("unknown method '{}', expected one of {}{}", name,
                                            fmt::join(names, ", "), did_you_mean(name, names)));
}

void register_method(const Method& method) {
  if (method.name.empty() || method.find_bins == nullptr) {
    throw Error(ErrorKind::usage,
                fmt::format("method '{}': expected a name and a function find_bins", method.name));
  }
  if (find_row(method.name) != table().end())
    throw Error(ErrorKind::usage,
                fmt::format("method '{}': a method of this name is already registered", method.name));
  if (table().size() == kMethods.size() + kMaxRegistered) {
    throw Error(ErrorKind::usage, fmt::format("method '{}': expected at most {} registered methods",
                                              method.name, kMaxRegistered));
  }
  table().push_back(method);
}

void unregister_method(std::string_view name) {
  const auto row = find_row(name);
  if (row == table().end() || row < table().begin() + static_cast<std::ptrdiff_t>(kMethods.size()))
    throw Error(ErrorKind::usage, fmt::format("method '{}': no method of this name is registered", name));
  table().erase(row);
}

}  // namespace dflop
