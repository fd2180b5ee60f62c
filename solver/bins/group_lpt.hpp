// LPT in two levels: over dp ranks, then over the microbatches of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "solver/bins.hpp"
#include "solver/bins/cap_table.hpp"

namespace dflop {

/// Gives each item, in this order, to the set whose larger load is smallest afterward, of the sets that take
/// the item. Ties go to the smallest sum of loads, then to the first set. Each set gets at least `fewest`
/// items. `takes(item, set)` returns whether the set may get the item, and `put(item, set)` is called when it
/// does.
/// @return the items of each set; empty if no set takes an item
template <typename Takes, typename Put>
std::vector<std::vector<std::int32_t>> lpt_sets(const BinProblem& problem,
                                                const std::vector<std::int32_t>& items, int sets,
                                                std::size_t fewest, const Takes& takes, const Put& put) {
  std::vector<std::vector<std::int32_t>> found(sets);
  std::vector<std::pair<double, double>> loads(sets);  // encoder, LLM
  std::size_t missing = fewest * sets;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::int32_t item = items[i];
    const bool only_missing = items.size() - i <= missing;
    int best = -1;
    std::pair<double, double> least;
    for (int s = 0; s < sets; ++s) {
      if ((only_missing && found[s].size() >= fewest) || !takes(item, s)) continue;
      const double encoder = loads[s].first + problem.encoder_s[item];
      const double llm = loads[s].second + problem.llm_s[item];
      const std::pair load(std::max(encoder, llm), encoder + llm);
      if (best >= 0 && load >= least) continue;
      least = load;
      best = s;
    }
    if (best < 0) return {};
    if (found[best].size() < fewest) --missing;
    found[best].push_back(item);
    put(item, best);
    loads[best].first += problem.encoder_s[item];
    loads[best].second += problem.llm_s[item];
  }
  return found;
}

/// Assigns as DistTrain does within a global batch: takes items in decreasing order of max(encoder, LLM) time
/// and gives each to the least loaded dp rank, whose items are then put into its microbatches in the same
/// way. DistTrain's microbatches have a fixed number of samples; the second level is this project's.
/// @return the bin of each item; empty if an item fits into no bin
inline std::vector<std::int32_t> group_lpt(const BinProblem& problem) {
  const auto fewest = static_cast<std::size_t>(problem.allow_empty ? 0 : problem.microbatches());
  const auto always = [](std::int32_t, int) { return true; };
  const auto nothing = [](std::int32_t, int) {};
  const auto groups = lpt_sets(problem, by_falling_size(problem), problem.dp, fewest, always, nothing);
  CapTable caps(problem);
  std::vector<std::int32_t> bin(problem.items());
  for (std::size_t rank = 0; rank < groups.size(); ++rank) {
    const auto bin_of = [&](int microbatch) {
      return microbatch * problem.dp + static_cast<std::int32_t>(rank);
    };
    const auto takes = [&](std::int32_t item, int m) { return caps.fits(item, bin_of(m)); };
    const auto put = [&](std::int32_t item, int m) {
      bin[item] = bin_of(m);
      caps.add(item, bin[item]);
    };
    const std::size_t fewest_of_bin = problem.allow_empty ? 0 : 1;
    if (lpt_sets(problem, groups[rank], problem.microbatches(), fewest_of_bin, takes, put).empty()) return {};
  }
  return bin;
}

}  // namespace dflop
