#include "solver/makespan/linear_program.hpp"

#include <ClpSimplex.hpp>

namespace dflop {

int LinearProgram::add_column(double cost) {
  cost_.push_back(cost);
  return static_cast<int>(cost_.size()) - 1;
}

void LinearProgram::add_row(std::span<const int> column, std::span<const double> value, double least,
                            bool equal) {
  column_.insert(column_.end(), column.begin(), column.end());
  value_.insert(value_.end(), value.begin(), value.end());
  begin_.push_back(static_cast<int>(column_.size()));
  least_.push_back(least);
  equal_.push_back(equal ? 1 : 0);
}

std::vector<double> LinearProgram::duals(int most_iterations) const {
  const int rows = static_cast<int>(least_.size());
  const int columns = static_cast<int>(cost_.size());
  const CoinPackedMatrix matrix(false, columns, rows, static_cast<CoinBigIndex>(value_.size()), value_.data(),
                                column_.data(), begin_.data(), nullptr);
  std::vector<double> most(rows, COIN_DBL_MAX);
  for (int r = 0; r < rows; ++r) {
    if (equal_[r] != 0) most[r] = least_[r];
  }
  ClpSimplex simplex;
  simplex.setLogLevel(0);
  simplex.loadProblem(matrix, nullptr, nullptr, cost_.data(), least_.data(), most.data());
  simplex.setMaximumIterations(most_iterations);
  simplex.dual();
  return std::vector<double>(simplex.dualRowSolution(), simplex.dualRowSolution() + rows);
}

}  // namespace dflop
