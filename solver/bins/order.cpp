#include "solver/bins/order.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace dflop {
namespace {

/// Loads that decide the order: the larger of both of each bin; the encoder's is that of the microbatch where
/// it is shared.
std::vector<double> bin_loads(const BinProblem& problem, const std::vector<std::int32_t>& bin) {
  const int share = problem.shared_encoder ? problem.dp : 1;
  std::vector<double> encoder(problem.bins / share, 0.0);
  std::vector<double> loads(problem.bins, 0.0);
  for (std::size_t i = 0; i < bin.size(); ++i) {
    encoder[bin[i] / share] += problem.encoder_s[i] / share;
    loads[bin[i]] += problem.llm_s[i];
  }
  for (int b = 0; b < problem.bins; ++b) loads[b] = std::max(loads[b], encoder[b / share]);
  return loads;
}

/// Indices by rising load, equal ones in their order.
void sort_by_load(std::span<std::int32_t> order, const std::vector<double>& loads) {
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return loads[a] < loads[b]; });
}

/// Bins in layers of like load, one for each microbatch, from the smallest to the largest.
std::vector<std::int32_t> layers(const BinProblem& problem, const std::vector<double>& loads, bool whole) {
  std::vector<std::int32_t> order(problem.bins);
  std::iota(order.begin(), order.end(), 0);
  if (!whole) {
    sort_by_load(order, loads);
    return order;
  }
  const int dp = problem.dp;
  std::vector<double> largest(problem.microbatches());
  std::vector<std::int32_t> microbatches(problem.microbatches());
  std::iota(microbatches.begin(), microbatches.end(), 0);
  for (const std::int32_t j : microbatches)
    largest[j] = *std::max_element(loads.begin() + j * dp, loads.begin() + (j + 1) * dp);
  sort_by_load(microbatches, largest);
  for (std::size_t k = 0; k < microbatches.size(); ++k) {
    const auto layer = std::span(order).subspan(k * dp, dp);
    std::iota(layer.begin(), layer.end(), microbatches[k] * dp);
    sort_by_load(layer, loads);
  }
  return order;
}

/// Microbatch of the r-th smallest layer of bins: 0, last, 1, last - 1, and so on to the middle.
int ramp(int r, int microbatches) {
  return r % 2 == 0 ? r / 2 : microbatches - 1 - r / 2;
}

}  // namespace

void arrange_bins(const BinProblem& problem, std::vector<std::int32_t>& bin) {
  const int dp = problem.dp;
  const bool whole = problem.shared_encoder || std::any_of(problem.caps.begin(), problem.caps.end(),
                                                           [](const Cap& cap) { return cap.of_microbatch; });
  const std::vector<std::int32_t> order = layers(problem, bin_loads(problem, bin), whole);
  std::vector<std::int32_t> renamed(problem.bins);
  for (int k = 0; k < problem.bins; ++k) {
    const int layer = k / dp;
    const int rank = layer % 2 == 0 ? k % dp : dp - 1 - k % dp;
    renamed[order[k]] = ramp(layer, problem.microbatches()) * dp + rank;
  }
  for (std::int32_t& b : bin) b = renamed[b];
}

}  // namespace dflop
