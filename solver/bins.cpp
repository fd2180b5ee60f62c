#include "solver/bins.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace dflop {
namespace {

/// Lower bound on the largest load of one dimension. `weights` in falling order.
double bound_of(const std::vector<double>& weights, int bins) {
  double bound = weights.empty() ? 0.0 : weights.front();
  bound = std::max(bound, std::accumulate(weights.begin(), weights.end(), 0.0) / bins);
  for (std::size_t k = 1; k * bins < weights.size(); ++k) {
    const auto last = weights.begin() + static_cast<std::ptrdiff_t>(k * bins);
    bound = std::max(bound, std::accumulate(last - static_cast<std::ptrdiff_t>(k), last + 1, 0.0));
  }
  return bound;
}

}  // namespace

double largest_load(const BinProblem& problem, std::span<const std::int32_t> bin) {
  std::vector<double> encoder(problem.bins, 0.0);
  std::vector<double> llm(problem.bins, 0.0);
  for (std::size_t i = 0; i < problem.items(); ++i) {
    encoder[bin[i]] += problem.encoder_s[i];
    llm[bin[i]] += problem.llm_s[i];
  }
  return std::max(*std::max_element(encoder.begin(), encoder.end()),
                  *std::max_element(llm.begin(), llm.end()));
}

double lower_bound(const BinProblem& problem) {
  double bound = 0;
  std::vector<double> weights(problem.items());
  for (const double encoder_part : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = encoder_part * problem.encoder_s[i] + (1.0 - encoder_part) * problem.llm_s[i];
    }
    std::sort(weights.begin(), weights.end(), std::greater<>());
    bound = std::max(bound, bound_of(weights, problem.bins));
  }
  return bound;
}

std::vector<std::int32_t> by_falling_size(const BinProblem& problem) {
  std::vector<std::int32_t> order(problem.items());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return problem.size_s(a) > problem.size_s(b); });
  return order;
}

bool meets_bound(double c_max_s, double bound_s) {
  return c_max_s <= bound_s * (1.0 + 1e-9);
}

}  // namespace dflop
