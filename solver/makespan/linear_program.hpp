// Linear programs, on Clp.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dflop {

/// Least cost . x with x >= 0 and rows a . x >= `least`, in parts equal to it.
class LinearProgram {
 public:
  /// @return the column
  int add_column(double cost);

  void add_row(std::span<const int> column, std::span<const double> value, double least, bool equal = false);

  /// Value of each row in the dual after at most `most_iterations` of the dual simplex method; optimal if it
  /// ended before. As good as the solver: who needs a proof checks it.
  std::vector<double> duals(int most_iterations) const;

 private:
  std::vector<double> cost_;
  std::vector<double> least_;
  std::vector<char> equal_;
  std::vector<int> begin_ = {0};  // of each row's entries, and their end
  std::vector<int> column_;
  std::vector<double> value_;
};

}  // namespace dflop
