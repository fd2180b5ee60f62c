#include "solver/lpt.hpp"

#include <algorithm>
#include <utility>

namespace dflop {

std::vector<std::int32_t> lpt(const BinProblem& problem) {
  std::vector<double> encoder(problem.bins, 0.0);
  std::vector<double> llm(problem.bins, 0.0);
  std::vector<bool> filled(problem.bins, false);
  int empty = problem.bins;
  std::vector<std::int32_t> bin(problem.items());
  std::size_t left = problem.items();
  for (const std::int32_t item : by_falling_size(problem)) {
    const auto load_with_item = [&](int b) {
      const double e = encoder[b] + problem.encoder_s[item];
      const double l = llm[b] + problem.llm_s[item];
      return std::pair(std::max(e, l), e + l);
    };
    // Items without work fill no bin by themselves: the last ones go where nothing is yet.
    const bool only_empty = left == static_cast<std::size_t>(empty);
    int best = -1;
    for (int b = 0; b < problem.bins; ++b) {
      if (only_empty && filled[b]) continue;
      if (best < 0 || load_with_item(b) < load_with_item(best)) best = b;
    }
    bin[item] = best;
    encoder[best] += problem.encoder_s[item];
    llm[best] += problem.llm_s[item];
    if (!filled[best]) --empty;
    filled[best] = true;
    --left;
  }
  return bin;
}

}  // namespace dflop
