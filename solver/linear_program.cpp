#include "solver/linear_program.hpp"

#include <ClpSimplex.hpp>
#include <algorithm>

namespace dflop {

class LinearProgram::Clp {
 public:
  ClpSimplex simplex;
};

namespace {

double coin(double bound) {
  return std::clamp(bound, -COIN_DBL_MAX, COIN_DBL_MAX);
}

}  // namespace

LinearProgram::LinearProgram(std::span<const LinearProgramColumn> columns) : clp_(std::make_unique<Clp>()) {
  ClpSimplex& simplex = clp_->simplex;
  simplex.setLogLevel(0);
  simplex.resize(0, static_cast<int>(columns.size()));
  for (int c = 0; c < static_cast<int>(columns.size()); ++c) {
    simplex.setObjectiveCoefficient(c, columns[c].cost);
    simplex.setColumnBounds(c, coin(columns[c].lower), coin(columns[c].upper));
  }
}

LinearProgram::~LinearProgram() = default;

void LinearProgram::add_row(std::span<const int> column, std::span<const double> value, double lower,
                            double upper) {
  clp_->simplex.addRow(static_cast<int>(column.size()), column.data(), value.data(), coin(lower),
                       coin(upper));
}

bool LinearProgram::solve(int most_iterations) {
  ClpSimplex& simplex = clp_->simplex;
  simplex.setMaximumIterations(simplex.numberIterations() + most_iterations);
  simplex.dual();
  return simplex.isProvenOptimal();
}

std::span<const double> LinearProgram::columns() const {
  return {clp_->simplex.primalColumnSolution(), static_cast<std::size_t>(clp_->simplex.numberColumns())};
}

std::span<const double> LinearProgram::duals() const {
  return {clp_->simplex.dualRowSolution(), static_cast<std::size_t>(clp_->simplex.numberRows())};
}

}  // namespace dflop
