// The two-dimensional min-max partition problem under every scheduler: items with an encoder and an LLM time
// go into bins, and the largest load of any bin in either dimension is to be small (DFLOP, section on the
// online scheduler).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/scheduler.hpp"

namespace dflop {

/// Items and bins. Both spans have one finite, non-negative time per item, in seconds.
struct BinProblem {
  std::span<const double> encoder_s;
  std::span<const double> llm_s;
  int bins = 1;

  std::size_t items() const { return encoder_s.size(); }
  /// The larger of an item's two times.
  double size_s(std::size_t item) const {
    return encoder_s[item] < llm_s[item] ? llm_s[item] : encoder_s[item];
  }
};

/// Which item is in which bin, and what is known about it.
struct BinSolution {
  std::vector<std::int32_t> bin;  ///< per item
  double bound_s = 0;             ///< no assignment has a smaller largest load
  ScheduleStatus status = ScheduleStatus::heuristic;
};

/// The largest load of any bin, encoder or LLM, in seconds.
double largest_load(const BinProblem& problem, std::span<const std::int32_t> bin);

/// A number of seconds that no assignment goes below. The largest of, over both dimensions and three mixtures
/// of them (a bin's larger load is at least any weighted mean of its loads): the sum over the bins; the
/// largest item; and the k + 1 smallest of the k * bins + 1 largest items, as some bin must hold that many of
/// them.
double lower_bound(const BinProblem& problem);

/// Items from the largest to the smallest, equal ones in their order.
std::vector<std::int32_t> by_falling_size(const BinProblem& problem);

/// True if `c_max_s` meets the bound to within rounding, which proves the assignment optimal.
bool meets_bound(double c_max_s, double bound_s);

}  // namespace dflop
