#include "solver/bin_order.hpp"

#include <algorithm>
#include <numeric>

namespace dflop {
namespace {

/// Bins from the smallest to the largest load, equal ones in their order.
std::vector<std::int32_t> by_rising_load(const BinProblem& problem, const std::vector<std::int32_t>& bin) {
  std::vector<double> encoder(problem.bins, 0.0);
  std::vector<double> llm(problem.bins, 0.0);
  for (std::size_t i = 0; i < bin.size(); ++i) {
    encoder[bin[i]] += problem.encoder_s[i];
    llm[bin[i]] += problem.llm_s[i];
  }
  std::vector<std::int32_t> order(problem.bins);
  std::iota(order.begin(), order.end(), 0);
  const auto load = [&](std::int32_t b) { return std::max(encoder[b], llm[b]); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return load(a) < load(b); });
  return order;
}

/// Microbatch of the r-th smallest layer of bins: 0, last, 1, last - 1, and so on to the middle.
int ramp(int r, int microbatches) {
  return r % 2 == 0 ? r / 2 : microbatches - 1 - r / 2;
}

}  // namespace

void arrange_bins(const BinProblem& problem, int dp, std::vector<std::int32_t>& bin) {
  const int microbatches = problem.bins / dp;
  const std::vector<std::int32_t> order = by_rising_load(problem, bin);
  std::vector<std::int32_t> renamed(problem.bins);
  for (int k = 0; k < problem.bins; ++k) {
    const int layer = k / dp;
    const int rank = layer % 2 == 0 ? k % dp : dp - 1 - k % dp;
    renamed[order[k]] = ramp(layer, microbatches) * dp + rank;
  }
  for (std::int32_t& b : bin) b = renamed[b];
}

}  // namespace dflop
