#include "solver/planners/dflop/item_bundles.hpp"

#include <algorithm>
#include <cmath>

#include "solver/planners/dflop/published_objective.hpp"

namespace dflop {
namespace {

using Loads = std::vector<Bundle>;  // of one item each

Workload mean_work(const Loads& loads, Workload Bundle::*module) {
  const auto mean = [&](std::int64_t Workload::*count) {
    double sum = 0;  // counts of hostile records might not add up in 64 bits
    for (const Bundle& load : loads) sum += static_cast<double>(load.*module.*count);
    return static_cast<std::int64_t>(std::min(std::floor(sum / static_cast<double>(loads.size())), 4e18));
  };
  return {mean(&Workload::sequences), mean(&Workload::tokens), mean(&Workload::attention_pairs)};
}

Workload least_work(const Loads& loads, Workload Bundle::*module) {
  Workload least = loads.front().*module;
  for (const Bundle& load : loads) {
    const Workload& work = load.*module;
    least = {std::min(least.sequences, work.sequences), std::min(least.tokens, work.tokens),
             std::min(least.attention_pairs, work.attention_pairs)};
  }
  return least;
}

void add_bundles(Loads loads, int halvings, Workload Bundle::*first, Workload Bundle::*second, BundleBy by,
                 std::vector<Bundle>& bundles) {
  if (loads.empty()) return;
  if (halvings == 0 || loads.size() == 1) {
    const auto work = by == BundleBy::mean ? mean_work : least_work;
    bundles.push_back(
        {static_cast<int>(loads.size()), work(loads, &Bundle::encoder), work(loads, &Bundle::llm)});
    return;
  }
  std::stable_sort(loads.begin(), loads.end(),
                   [&](const Bundle& a, const Bundle& b) { return (a.*first).tokens < (b.*first).tokens; });
  const auto middle = loads.begin() + static_cast<std::ptrdiff_t>(loads.size() / 2);
  add_bundles({loads.begin(), middle}, halvings - 1, second, first, by, bundles);
  add_bundles({middle, loads.end()}, halvings - 1, second, first, by, bundles);
}

}  // namespace

std::vector<Bundle> single_items(std::span<const Sample> items) {
  std::vector<Bundle> bundles;
  for (const Sample& item : items) bundles.push_back({1, item.encoder(), item.llm()});
  return bundles;
}

std::vector<Bundle> bundle_items(std::span<const Sample> items, int halvings, BundleBy by) {
  std::vector<Bundle> bundles;
  const Loads loads = single_items(items);
  for (const bool no_encoder : {false, true}) {
    for (const bool no_llm : {false, true}) {
      Loads alike;
      std::copy_if(loads.begin(), loads.end(), std::back_inserter(alike), [&](const Bundle& load) {
        return load.encoder.empty() == no_encoder && load.llm.empty() == no_llm;
      });
      add_bundles(std::move(alike), halvings, &Bundle::encoder, &Bundle::llm, by, bundles);
    }
  }
  return bundles;
}

Workload share_of_bundle(const Workload& work, int items, int gbs, std::int64_t shares) {
  if (items == 1) return share_of_batch(work, gbs, shares);
  // share_of_batch() rounds by at most a half.
  const auto share = [&](std::int64_t count) {
    const double copies = static_cast<double>(count) * gbs / static_cast<double>(shares);
    return static_cast<std::int64_t>(std::clamp(std::floor(copies - 0.5), 0.0, 4e18));
  };
  Workload least{share(work.sequences), share(work.tokens), share(work.attention_pairs)};
  if (!work.empty()) least.tokens = std::max<std::int64_t>(least.tokens, 1);
  return least;
}

}  // namespace dflop
