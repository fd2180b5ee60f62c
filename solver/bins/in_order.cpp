#include "solver/bins/in_order.hpp"

#include <algorithm>

#include "solver/bins/cap_table.hpp"

namespace dflop {

std::vector<std::int32_t> place_in_order(const BinProblem& problem, std::span<const std::int32_t> order) {
  CapTable caps(problem);
  std::vector<std::int32_t> bin(order.size());
  std::vector<char> filled(problem.bins, 0);
  const std::size_t count = order.size() / problem.bins;
  const std::size_t larger = order.size() % problem.bins;  // bins with one more
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::size_t in_larger = larger * (count + 1);
    const std::size_t own = k < in_larger ? k / (count + 1) : larger + (k - in_larger) / count;
    auto b = static_cast<std::int32_t>(own);
    int tried = 0;
    while (tried < problem.bins && !caps.fits(order[k], b)) {
      b = (b + 1) % problem.bins;
      ++tried;
    }
    if (tried == problem.bins) return {};
    bin[order[k]] = b;
    filled[b] = 1;
    caps.add(order[k], b);
  }
  if (!problem.allow_empty && std::find(filled.begin(), filled.end(), 0) != filled.end()) return {};
  return bin;
}

}  // namespace dflop
