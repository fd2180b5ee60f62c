#include "solver/ilp.hpp"

#include <CbcModel.hpp>
#include <ClpSolve.hpp>
#include <CoinError.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>
#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "solver/lpt.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

/// The integer program with loads in units of the simple bound, so that C is just above one. Items are
/// numbered by falling size; item r has a column for each of its bins 0 .. min(r, bins - 1).
class IntegerProgram {
 public:
  IntegerProgram(const BinProblem& problem, double bound_s)
      : problem_(problem), scale_(1.0 / bound_s), order_(by_falling_size(problem)) {
    for (std::size_t r = 0; r < order_.size(); ++r) {
      first_column_.push_back(columns_);
      columns_ += bins_of(r);
    }
  }

  int columns() const { return columns_ + 1; }
  double scale() const { return scale_; }

  OsiClpSolverInterface solver() const;

  /// The columns' values for an assignment; its bins are renamed in the order of their largest items.
  std::vector<double> encode(const std::vector<std::int32_t>& bin) const;

  std::vector<std::int32_t> decode(const double* values) const;

 private:
  int bins_of(std::size_t r) const { return std::min(static_cast<int>(r) + 1, problem_.bins); }

  const BinProblem& problem_;
  double scale_;
  std::vector<std::int32_t> order_;
  std::vector<int> first_column_;
  int columns_ = 0;  // without C, which is the last
};

OsiClpSolverInterface IntegerProgram::solver() const {
  const int items = static_cast<int>(order_.size());
  const int bins = problem_.bins;
  // Rows: an item is in one bin; a bin has an item; encoder load; LLM load.
  std::vector<int> row_indices;
  std::vector<int> column_indices;
  std::vector<double> elements;
  const auto add = [&](int row, int column, double element) {
    if (element == 0) return;
    row_indices.push_back(row);
    column_indices.push_back(column);
    elements.push_back(element);
  };
  for (int r = 0; r < items; ++r) {
    for (int b = 0; b < bins_of(r); ++b) {
      const int column = first_column_[r] + b;
      add(r, column, 1.0);
      add(items + b, column, 1.0);
      add(items + bins + b, column, problem_.encoder_s[order_[r]] * scale_);
      add(items + 2 * bins + b, column, problem_.llm_s[order_[r]] * scale_);
    }
  }
  for (int b = 0; b < 2 * bins; ++b) add(items + bins + b, columns_, -1.0);
  const CoinPackedMatrix matrix(true, row_indices.data(), column_indices.data(), elements.data(),
                                static_cast<CoinBigIndex>(elements.size()));

  const int rows = items + 3 * bins;
  std::vector<double> row_lower(rows, 1.0);
  std::vector<double> row_upper(rows, COIN_DBL_MAX);
  std::fill_n(row_upper.begin(), items, 1.0);
  std::fill(row_lower.begin() + items + bins, row_lower.end(), -COIN_DBL_MAX);
  std::fill(row_upper.begin() + items + bins, row_upper.end(), 0.0);
  std::vector<double> column_lower(columns(), 0.0);
  std::vector<double> column_upper(columns(), 1.0);
  std::vector<double> objective(columns(), 0.0);
  column_lower[columns_] = 1.0;
  column_upper[columns_] = COIN_DBL_MAX;
  objective[columns_] = 1.0;

  OsiClpSolverInterface solver;
  solver.messageHandler()->setLogLevel(0);
  solver.loadProblem(matrix, column_lower.data(), column_upper.data(), objective.data(), row_lower.data(),
                     row_upper.data());
  for (int c = 0; c < columns_; ++c) solver.setInteger(c);
  // Clp's own choice of start for larger models crashes in its Idiot code (Debian 12's 1.17.6).
  ClpSolve dual;
  dual.setSolveType(ClpSolve::useDual);
  dual.setPresolveType(ClpSolve::presolveOff);
  solver.setSolveOptions(dual);
  solver.setDblParam(OsiPrimalTolerance, 1e-9);
  return solver;
}

std::vector<double> IntegerProgram::encode(const std::vector<std::int32_t>& bin) const {
  std::vector<int> renamed(problem_.bins, -1);
  int used = 0;
  std::vector<double> values(columns(), 0.0);
  for (std::size_t r = 0; r < order_.size(); ++r) {
    int& name = renamed[bin[order_[r]]];
    if (name < 0) name = used++;
    values[first_column_[r] + name] = 1.0;
  }
  values[columns_] = largest_load(problem_, bin) * scale_;
  return values;
}

std::vector<std::int32_t> IntegerProgram::decode(const double* values) const {
  std::vector<std::int32_t> bin(order_.size());
  for (std::size_t r = 0; r < order_.size(); ++r) {
    const double* first = values + first_column_[r];
    bin[order_[r]] = static_cast<std::int32_t>(std::max_element(first, first + bins_of(r)) - first);
  }
  return bin;
}

/// Sets limits and tolerances. CbcMain1 would add cuts and heuristics but is not safe to call from several
/// threads.
void configure(CbcModel& model, const IlpLimits& limits, Clock::time_point begin) {
  model.setLogLevel(0);
  model.messageHandler()->setLogLevel(0);
  model.solver()->messageHandler()->setLogLevel(0);
  model.setAllowableGap(0.0);
  model.setDblParam(CbcModel::CbcCutoffIncrement, 1e-9);
  model.setIntegerTolerance(1e-8);
  if (limits.time) {
    model.setUseElapsedTime(true);
    const Seconds left = *limits.time - (Clock::now() - begin);
    model.setMaximumSeconds(std::max(0.0, left.count()));
  } else {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    model.setMaximumNodes(static_cast<int>(std::min(limits.nodes, most)));
  }
}

/// Improves `solution`, which is LPT's, as far as the limits allow.
void branch_and_bound(const BinProblem& problem, const IlpLimits& limits, BinSolution& solution) {
  const Clock::time_point begin = Clock::now();
  const IntegerProgram program(problem, solution.bound_s);
  CbcModel model(program.solver());
  configure(model, limits, begin);
  std::vector<double> start = program.encode(solution.bin);
  model.setBestSolution(start.data(), program.columns(), start.back(), true);
  model.branchAndBound();

  if (model.bestSolution() != nullptr) {
    std::vector<std::int32_t> found = program.decode(model.bestSolution());
    if (largest_load(problem, found) < largest_load(problem, solution.bin)) solution.bin = std::move(found);
  }
  if (model.isProvenOptimal()) {
    solution.bound_s = largest_load(problem, solution.bin);
    solution.status = ScheduleStatus::optimal;
    return;
  }
  if (model.isAbandoned()) return;  // and stays LPT's, with the simple bound
  const double possible = model.getBestPossibleObjValue() / program.scale();
  if (possible <= largest_load(problem, solution.bin))
    solution.bound_s = std::max(solution.bound_s, possible);
  solution.status = limits.time ? ScheduleStatus::time_limit : ScheduleStatus::node_limit;
}

}  // namespace

BinSolution solve_ilp(const BinProblem& problem, const IlpLimits& limits) {
  BinSolution solution{lpt(problem), lower_bound(problem), ScheduleStatus::fallback};
  if (meets_bound(largest_load(problem, solution.bin), solution.bound_s)) {
    solution.status = ScheduleStatus::optimal;
    return solution;
  }
  const std::int64_t binaries = static_cast<std::int64_t>(problem.items()) * problem.bins;
  if (binaries > (limits.time ? kTimeLimitBinaries : kNodeBudgetBinaries)) return solution;
  try {
    branch_and_bound(problem, limits, solution);
  } catch (const CoinError&) {
    solution.status = ScheduleStatus::fallback;
  }
  return solution;
}

}  // namespace dflop
