// A linear program to which rows are added between solutions, on Clp.
#pragma once

#include <memory>
#include <span>
#include <vector>

namespace dflop {

struct LinearProgramColumn {
  double cost = 0;
  double lower = 0;
  double upper = 0;  ///< infinity allowed, as for `lower`
};

/// Least cost . x with lower <= x <= upper and rows lower <= a . x <= upper. One thread at a time. What it
/// returns is as good as the solver: who needs a proof checks it.
class LinearProgram {
 public:
  explicit LinearProgram(std::span<const LinearProgramColumn> columns);
  ~LinearProgram();

  /// `value` per entry of `column`.
  void add_row(std::span<const int> column, std::span<const double> value, double lower, double upper);

  /// Dual simplex from where the last call ended. False if it did not reach an optimum.
  bool solve(int most_iterations);

  std::span<const double> columns() const;
  /// Per row; not negative for rows with a lower side only.
  std::span<const double> duals() const;

 private:
  class Clp;
  std::unique_ptr<Clp> clp_;
};

}  // namespace dflop
