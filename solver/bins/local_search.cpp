#include "solver/bins/local_search.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "solver/bins/lpt.hpp"
#include "solver/bins/search.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDefaultSteps = 2'000'000;
/// A load in float that is the bound's to within rounding.
constexpr float kMet = 1 + 2e-7F;

/// When a search is to end.
class Budget {
 public:
  Budget(const SolveLimits& limits, Clock::time_point begin) : limits_(limits), begin_(begin) {}

  bool over(const BinSearch& search) const {
    if (limits_.stop.stop_requested()) return true;
    if (limits_.time) return Clock::now() - begin_ >= *limits_.time;
    return search.tries() >= (limits_.steps > 0 ? limits_.steps : kDefaultSteps);
  }

 private:
  const SolveLimits& limits_;
  Clock::time_point begin_;
};

/// Exchanges until none helps, `goal` is reached or the budget is spent.
void descend(BinSearch& search, float goal, const Budget& budget) {
  const auto over = [&] { return budget.over(search); };
  while (search.largest() > goal && !over()) {
    if (!search.exchange_items(over) && !search.exchange_pairs(over)) return;
  }
}

/// Descends again and again from kicks of the best assignment. `found` is called with each better one, and
/// ends the search by returning true.
template <typename Found>
void search_on(BinSearch& search, float goal, const Budget& budget, const Found& found) {
  std::vector<std::int32_t> best = search.assignment();
  float least = search.largest();
  while (true) {
    descend(search, goal, budget);
    const float load = search.largest();
    if (load <= least) best = search.assignment();
    if (load < least && found(best)) return;
    least = std::min(least, load);
    if (least <= goal || budget.over(search)) return;
    if (load > least) search.set(best);
    search.kick();
  }
}

/// What each item holds of the caps, as a share of what a bin may hold when a window is filled evenly.
std::vector<double> shares(const BinProblem& problem, bool of_microbatch) {
  std::vector<double> share(problem.items(), 0.0);
  for (const Cap& cap : problem.caps) {
    if (cap.of_microbatch != of_microbatch || cap.most <= 0) continue;
    const int window = std::clamp(cap.window, 1, problem.microbatches());
    const double bins = of_microbatch ? problem.dp : 1;
    for (std::size_t i = 0; i < share.size(); ++i)
      share[i] = std::max(share[i], cap.weight[i] * window * bins / cap.most);
  }
  return share;
}

}  // namespace

BinSolution local_search(const BinProblem& problem, const SolveLimits& limits) {
  const Budget budget(limits, Clock::now());
  BinSolution solution{obey_caps(problem, limits), lower_bound(problem)};
  if (solution.bin.empty() && problem.items() > 0) {
    solution.status = ScheduleStatus::infeasible;
    solution.reason = "no assignment that obeys all caps was found";
  }
  if (solution.bin.empty()) return solution;
  double least = largest_load(problem, solution.bin);
  if (limits.improved) limits.improved(solution.bin, least);
  if (problem.bins == 1 || meets_bound(least, solution.bound_s)) return solution;
  if (static_cast<int>(problem.caps.size()) > kMostCaps) {
    solution.status = ScheduleStatus::fallback;
    solution.reason =
        std::to_string(problem.caps.size()) + " caps, exchanges obey at most " + std::to_string(kMostCaps);
    return solution;
  }

  BinSearch search(problem, solution.bound_s, solution.bin, Random(limits.seed, limits.stream));
  search_on(search, kMet, budget, [&](const std::vector<std::int32_t>& bin) {
    const double load = largest_load(problem, bin);
    if (load < least) {
      least = load;
      solution.bin = bin;
      if (limits.improved) limits.improved(bin, load);
    }
    return meets_bound(least, solution.bound_s);
  });
  solution.status = limits.time ? ScheduleStatus::time_limit : ScheduleStatus::node_limit;
  return solution;
}

std::vector<std::int32_t> obey_caps(const BinProblem& problem, const SolveLimits& limits) {
  const Budget budget(limits, Clock::now());
  std::vector<std::int32_t> bin = lpt(problem);
  if (!bin.empty()) return bin;
  const std::vector<double> of_microbatch = shares(problem, true);
  const std::vector<double> of_bin = shares(problem, false);
  BinProblem fill{of_microbatch, of_bin, problem.bins, problem.dp, true, problem.allow_empty};
  bin = lpt(fill);
  if (!broken_cap(problem, bin)) return bin;
  if (problem.bins == 1) return {};
  bool obeyed = false;
  BinSearch search(fill, 1.0, bin, Random(limits.seed, limits.stream));
  search_on(search, 0, budget, [&](const std::vector<std::int32_t>& found) {
    obeyed = !broken_cap(problem, found);
    bin = found;
    return obeyed;
  });
  return obeyed ? bin : std::vector<std::int32_t>();
}

}  // namespace dflop
