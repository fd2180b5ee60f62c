#include "solver/bins/ilp.hpp"

#include <fmt/format.h>
#include <CbcModel.hpp>
#include <ClpSolve.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/support/clock.hpp"
#include "solver/bins/local_search.hpp"
#include "solver/bins/worker_process.hpp"

namespace dflop {
namespace {

/// CBC checks the clock only between nodes; its process is killed when it overruns by more than this.
constexpr Seconds kGrace(0.2);
/// These limit a call without a time limit. They are far longer than the usual time of the first linear
/// program and of a node. Only a process that hangs reaches them.
constexpr Seconds kLongestStart(30);
constexpr Seconds kLongestNode(0.05);
constexpr Seconds kLongest(600);

/// A slow machine, with other programs on its cores, takes up to this long for a node, plus this long for
/// each binary variable: four times the measured times (docs/results.md). The first linear program takes as
/// long as some nodes.
constexpr double kNodeSeconds = 0.6e-3;
constexpr double kNodeSecondsPerBinary = 12e-6;
constexpr std::int64_t kStartNodes = 10;

/// Local search gets this fraction of a time limit if CBC comes after it.
constexpr double kSearchPart = 0.25;

/// A Symmetry says which bins an item may be kept out of, by its size rank, without losing a partition.
enum class Symmetry { bins, microbatches, none };

Symmetry symmetry_of(const BinProblem& problem) {
  bool whole = problem.shared_encoder && problem.dp > 1;
  for (const Cap& cap : problem.caps) {
    if (cap.window > 1 && problem.microbatches() > 1) return Symmetry::none;
    whole = whole || (cap.of_microbatch && problem.dp > 1);
  }
  return whole ? Symmetry::microbatches : Symmetry::bins;
}

/// Rows hold the elements and limits of a linear program's rows.
struct Rows {
  std::vector<int> row;
  std::vector<int> column;
  std::vector<double> element;
  std::vector<double> lower;
  std::vector<double> upper;

  void begin(double least, double most) {
    lower.push_back(least);
    upper.push_back(most);
  }
  void add(int c, double value) {
    if (value == 0 || c < 0) return;
    row.push_back(static_cast<int>(lower.size()) - 1);
    column.push_back(c);
    element.push_back(value);
  }
};

/// An IntegerProgram has loads in units of the simple bound, so that C is just above one. Items are numbered
/// by decreasing size.
class IntegerProgram {
 public:
  IntegerProgram(const BinProblem& problem, double bound_s)
      : problem_(problem),
        scale_(1.0 / bound_s),
        symmetry_(symmetry_of(problem)),
        order_(by_falling_size(problem)),
        column_(order_.size() * problem.bins, -1) {
    for (std::size_t r = 0; r < order_.size(); ++r) {
      for (int b = 0; b < problem.bins; ++b) {
        if (allowed(static_cast<int>(r), b)) column_[r * problem.bins + b] = columns_++;
      }
    }
  }

  int columns() const { return columns_ + 1; }

  OsiClpSolverInterface solver() const {
    const int items = static_cast<int>(order_.size());
    const int bins = problem_.bins;
    const int dp = problem_.dp;
    const int share = problem_.share();
    Rows rows;
    // Adds a row over `count` bins first, first + step, ..., with elements `value(item)`.
    const auto add_bins = [&](int first, int count, int step, const auto& value) {
      for (int k = 0; k < count; ++k) {
        for (int r = 0; r < items; ++r) rows.add(column_[r * bins + first + k * step], value(order_[r]));
      }
    };
    for (int r = 0; r < items; ++r) {
      rows.begin(1, 1);
      for (int b = 0; b < bins; ++b) rows.add(column_[r * bins + b], 1);
    }
    for (int b = 0; b < bins; ++b) {
      rows.begin(problem_.allow_empty ? 0 : 1, COIN_DBL_MAX);
      add_bins(b, 1, 1, [](std::int32_t) { return 1.0; });
      rows.begin(-COIN_DBL_MAX, 0);
      add_bins(b, 1, 1, [&](std::int32_t i) { return problem_.llm_s[i] * scale_; });
      rows.add(columns_, -1);
    }
    for (int b = 0; b < bins; b += share) {
      rows.begin(-COIN_DBL_MAX, 0);
      add_bins(b, share, 1, [&](std::int32_t i) { return problem_.encoder_s[i] * scale_ / share; });
      rows.add(columns_, -1);
    }
    for (const Cap& cap : problem_.caps) {
      const int window = problem_.window(cap);
      const double unit = cap.most > 0 ? cap.most : 1.0;
      for (int first = 0; first + window <= problem_.microbatches(); ++first) {
        for (int d = 0; d < (cap.of_microbatch ? 1 : dp); ++d) {
          rows.begin(-COIN_DBL_MAX, cap.most / unit);
          const auto weight = [&](std::int32_t i) { return cap.weight[i] / unit; };
          if (cap.of_microbatch) add_bins(first * dp, window * dp, 1, weight);
          if (!cap.of_microbatch) add_bins(first * dp + d, window, dp, weight);
        }
      }
    }
    CoinPackedMatrix matrix(true, rows.row.data(), rows.column.data(), rows.element.data(),
                            static_cast<CoinBigIndex>(rows.element.size()));
    matrix.setDimensions(static_cast<int>(rows.lower.size()), columns());
    std::vector<double> column_lower(columns(), 0.0);
    std::vector<double> column_upper(columns(), 1.0);
    std::vector<double> objective(columns(), 0.0);
    column_lower[columns_] = 1.0;
    column_upper[columns_] = COIN_DBL_MAX;
    objective[columns_] = 1.0;

    OsiClpSolverInterface solver;
    solver.messageHandler()->setLogLevel(0);
    solver.loadProblem(matrix, column_lower.data(), column_upper.data(), objective.data(), rows.lower.data(),
                       rows.upper.data());
    for (int c = 0; c < columns_; ++c) solver.setInteger(c);
    // Clp's default choice of start for larger models crashes in its Idiot code (Debian 12's 1.17.6).
    ClpSolve dual;
    dual.setSolveType(ClpSolve::useDual);
    dual.setPresolveType(ClpSolve::presolveOff);
    solver.setSolveOptions(dual);
    solver.setDblParam(OsiPrimalTolerance, 1e-9);
    return solver;
  }

  /// Returns the values of the columns (variables) for an assignment whose bins are renumbered in the order
  /// of their largest items.
  std::vector<double> encode(const std::vector<std::int32_t>& bin) const {
    const int size = group();
    std::vector<int> new_group(problem_.bins / size, -1);
    std::vector<int> new_rank(problem_.bins, -1);
    std::vector<int> ranks(problem_.bins / size, 0);
    int groups = 0;
    std::vector<double> values(columns(), 0.0);
    for (std::size_t r = 0; r < order_.size(); ++r) {
      const int b = bin[order_[r]];
      int renamed = b;
      if (symmetry_ != Symmetry::none) {
        if (new_group[b / size] < 0) new_group[b / size] = groups++;
        if (new_rank[b] < 0) new_rank[b] = ranks[b / size]++;
        renamed = new_group[b / size] * size + new_rank[b];
      }
      values[column_[r * problem_.bins + renamed]] = 1.0;
    }
    values[columns_] = largest_load(problem_, bin) * scale_;
    return values;
  }

  std::vector<std::int32_t> decode(const double* values) const {
    std::vector<std::int32_t> bin(order_.size(), 0);
    for (std::size_t r = 0; r < order_.size(); ++r) {
      double most = -1;
      for (int b = 0; b < problem_.bins; ++b) {
        const int c = column_[r * problem_.bins + b];
        if (c < 0 || values[c] <= most) continue;
        most = values[c];
        bin[order_[r]] = b;
      }
    }
    return bin;
  }

 private:
  /// Returns how many bins are renamed together: all of a microbatch, or one.
  int group() const { return symmetry_ == Symmetry::microbatches ? problem_.dp : 1; }
  bool allowed(int r, int b) const {
    return symmetry_ == Symmetry::none || (b / group() <= r && b % group() <= r);
  }

  const BinProblem& problem_;
  double scale_;
  Symmetry symmetry_;
  std::vector<std::int32_t> order_;
  std::vector<int> column_;  // [rank, bin]; -1: not allowed
  int columns_ = 0;          // not counting C, which is the last
};

/// Returns the number of nodes that can shorten a microbatch by up to `gain_s`; 0 if CBC is not worth its
/// time.
std::int64_t nodes_of(const BinProblem& problem, const SolveLimits& limits, double gain_s,
                      std::int64_t binaries) {
  if (limits.steps > 0 || !limits.worth) return limits.steps > 0 ? limits.steps : kDefaultNodes;
  const double worth_s = limits.worth_s(iteration_s(problem), gain_s * problem.microbatches());
  const double node_s = kNodeSeconds + kNodeSecondsPerBinary * static_cast<double>(binaries);
  return limits.steps_or(kDefaultNodes + kStartNodes, worth_s, node_s) - kStartNodes;
}

/// Sets limits and tolerances. `gap`: the relative gap with which the search may end. CbcMain1 would add cuts
/// and heuristics but is not thread-safe.
void configure(CbcModel& model, const SolveLimits& limits, double gap, const Stopwatch& watch) {
  model.setLogLevel(0);
  model.messageHandler()->setLogLevel(0);
  model.solver()->messageHandler()->setLogLevel(0);
  model.setAllowableGap(0.0);
  model.setAllowableFractionGap(gap);
  model.setDblParam(CbcModel::CbcCutoffIncrement, 1e-9);
  model.setIntegerTolerance(1e-8);
  if (limits.time) {
    model.setUseElapsedTime(true);
    const Seconds left = *limits.time - watch.elapsed();
    model.setMaximumSeconds(std::max(0.0, left.count()));
  } else {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    model.setMaximumNodes(static_cast<int>(std::min(limits.steps, most)));
  }
}

/// The worker sends its Verdict first, then CBC's bound in units of the simple bound, and last the bins, if
/// it has any.
enum class Verdict { optimal, limit, abandoned };

std::vector<double> branch_and_bound(const BinProblem& problem, const SolveLimits& limits, double gap,
                                     const AssignmentSolution& seed, const Stopwatch& watch) {
  const IntegerProgram program(problem, seed.bound.count());
  CbcModel model(program.solver());
  configure(model, limits, gap, watch);
  std::vector<double> start = program.encode(seed.bin);
  model.setBestSolution(start.data(), program.columns(), start.back(), true);
  model.branchAndBound();
  Verdict verdict = Verdict::limit;
  if (model.isAbandoned()) verdict = Verdict::abandoned;
  if (model.isProvenOptimal()) verdict = Verdict::optimal;
  std::vector<double> values = {static_cast<double>(verdict), model.getBestPossibleObjValue()};
  if (model.bestSolution() != nullptr) {
    const std::vector<std::int32_t> bin = program.decode(model.bestSolution());
    values.insert(values.end(), bin.begin(), bin.end());
  }
  return values;
}

void fall_back(AssignmentSolution& solution, std::string reason) {
  solution.status = ScheduleStatus::fallback;
  solution.reason = std::move(reason);
}

/// Returns whether the solution's bound proves it optimal, and if so sets its status.
bool prove(const BinProblem& problem, AssignmentSolution& solution) {
  if (!meets_bound(largest_load(problem, solution.bin), solution.bound.count())) return false;
  solution.status = ScheduleStatus::optimal;
  solution.reason.clear();
  return true;
}

/// Takes the parts of the worker's message that improve on the seed.
void take(const BinProblem& problem, const std::vector<double>& values, AssignmentSolution& solution) {
  const auto verdict = static_cast<Verdict>(static_cast<int>(values[0]));
  if (verdict == Verdict::abandoned) return fall_back(solution, "CBC gave up");
  const std::vector<std::int32_t> bin(values.begin() + 2, values.end());
  if (!bin.empty() && !broken_cap(problem, bin) &&
      largest_load(problem, bin) < largest_load(problem, solution.bin)) {
    solution.bin = bin;
  }
  const double found = largest_load(problem, solution.bin);
  const double possible = values[1] * solution.bound.count();
  // A bound above the found value by more than rounding is invalid.
  if (meets_bound(possible, found) && possible > solution.bound.count()) {
    solution.bound = Seconds(std::min(possible, found));
    solution.bound_kind = BoundKind::integer_program;
  }
  // CBC's optimum holds for caps with tolerances, so it may differ from the found value.
  if (verdict == Verdict::optimal) solution.status = ScheduleStatus::heuristic;
  prove(problem, solution);
}

/// Returns how long CBC's process may still take.
Seconds longest(const SolveLimits& limits, const Stopwatch& watch) {
  if (limits.time) return *limits.time + kGrace - watch.elapsed();
  return std::min(kLongest, kLongestStart + kLongestNode * static_cast<double>(limits.steps));
}

}  // namespace

AssignmentSolution solve_ilp(const BinProblem& problem, const SolveLimits& limits) {
  const Stopwatch watch;
  const std::int64_t binaries = static_cast<std::int64_t>(problem.items()) * problem.bins;
  const bool small = binaries <= (limits.time ? kTimeLimitBinaries : kNodeBudgetBinaries);
  SolveLimits search = limits;
  search.steps = 0;  // use its default, because a step of `limits` is a node
  if (limits.time && small) search.time = *limits.time * kSearchPart;
  AssignmentSolution solution = local_search(problem, search);
  if (solution.bin.empty() || prove(problem, solution) || !small) return solution;
  solution.reason.clear();
  const double searched = largest_load(problem, solution.bin);
  if (meets_bound(searched, solution.bound.count() * (1 + limits.enough_gap()))) return solution;
  SolveLimits nodes = limits;
  nodes.steps = nodes_of(problem, limits, searched - solution.bound.count(), binaries);
  if (nodes.steps < 1) return solution;
  const WorkerResult result =
      run_in_worker([&] { return branch_and_bound(problem, nodes, limits.enough_gap(), solution, watch); },
                    longest(nodes, watch), limits.stop);
  solution.status = limits.time ? ScheduleStatus::time_limit : ScheduleStatus::node_limit;
  if (result.end == WorkerEnd::late) solution.status = ScheduleStatus::time_limit;
  if (result.end == WorkerEnd::done && is_ilp_answer(problem, result.values)) {
    take(problem, result.values, solution);
  } else if (result.end == WorkerEnd::done || result.end == WorkerEnd::died) {
    fall_back(solution, "the process of CBC failed");
  }
  const double found = largest_load(problem, solution.bin);
  if (limits.improved && found < searched) limits.improved(solution.bin, found);
  return solution;
}

bool is_ilp_answer(const BinProblem& problem, std::span<const double> values) {
  if (values.size() != 2 && values.size() != 2 + problem.items()) return false;
  const auto one_of = [](double value, int count) {
    return value >= 0 && value < count && value == std::floor(value);
  };
  if (!one_of(values[0], 3) || !std::isfinite(values[1])) return false;
  const auto is_bin = [&](double value) { return one_of(value, problem.bins); };
  if (!std::all_of(values.begin() + 2, values.end(), is_bin)) return false;
  const std::vector<std::int32_t> bin(values.begin() + 2, values.end());
  return bin.empty() || fills_bins(problem, bin);
}

}  // namespace dflop
