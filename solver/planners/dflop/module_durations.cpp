#include "solver/planners/dflop/module_durations.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/support/parallel.hpp"
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

constexpr int kHalvings = 4;  // 16 bundles, more where some items lack a module

BundleBy bundle_by(const CostModel& cost) {
  return cost.convex_floor(Op::forward, Stage{}, Work{}) ? BundleBy::mean : BundleBy::least;
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

CoarseDurations::CoarseDurations(const std::vector<std::int64_t>& most_shares, const Sum& sum)
    : seconds_(most_shares.size()) {
  std::vector<std::pair<int, int>> cells;
  for (std::size_t kind = 0; kind < most_shares.size(); ++kind) {
    const int last = share_grid::index_at_least(most_shares[kind]);
    seconds_[kind].resize(last + 1);
    for (int index = 1; index <= last; ++index) cells.emplace_back(static_cast<int>(kind), index);
  }
  parallel_for(cells.size(), [&](std::size_t c) {
    const auto [kind, index] = cells[c];
    seconds_[kind][index] = sum(kind, share_grid::value(index));
  });
}

DurationTable::DurationTable(std::span<const RepeatedLoad> loads, Duration duration)
    : duration_(std::move(duration)) {
  for (const RepeatedLoad& load : loads) {
    const auto known = std::find(loads_.begin(), loads_.end(), load);
    entry_.push_back(static_cast<std::size_t>(known - loads_.begin()));
    if (known == loads_.end()) loads_.push_back(load);
  }
}

const DurationTable::Row& DurationTable::request(int kind, std::int64_t shares) {
  const std::uint64_t key = static_cast<std::uint64_t>(kind) << 40 | static_cast<std::uint64_t>(shares);
  const auto [place, is_new] = rows_.try_emplace(key, Row{kind, shares});
  if (is_new) unfilled_.push_back(&place->second);
  return place->second;
}

void DurationTable::fill() {
  parallel_for(unfilled_.size(), [&](std::size_t r) {
    Row& row = *unfilled_[r];
    row.seconds.reserve(loads_.size());
    for (const RepeatedLoad& load : loads_) row.seconds.push_back(duration_(row.kind, row.shares, load));
  });
  unfilled_.clear();
}

// The mean of all items says much of their sum, the least of all of them says nothing.
PlanningItems::PlanningItems(std::span<const Sample> items, const CostModel& cost)
    : by(bundle_by(cost)),
      coarse(bundle_items(items, by == BundleBy::mean ? 0 : kHalvings, by)),
      bundles(bundle_items(items, kHalvings, by)),
      single(single_items(items)) {}

ModuleDurations::ModuleDurations(const PlanRequest& request, const PlanningItems& items, Module module)
    : request_(request),
      module_(module),
      by_(items.by),
      all_(module_choices(request, module)),
      coarse_(coarse_durations(items.coarse)),
      bundles_(table(items.bundles)),
      single_(table(items.single)) {}

std::vector<RepeatedLoad> ModuleDurations::loads(const std::vector<Bundle>& bundles) const {
  std::vector<RepeatedLoad> loads;
  for (const Bundle& bundle : bundles) {
    loads.push_back({bundle.items, module_ == Module::encoder ? bundle.encoder : bundle.llm});
  }
  return loads;
}

DurationTable ModuleDurations::table(const std::vector<Bundle>& bundles) {
  return DurationTable(loads(bundles), [this](int kind, std::int64_t shares, const RepeatedLoad& load) {
    return duration(kind, shares, load);
  });
}

CoarseDurations ModuleDurations::coarse_durations(const std::vector<Bundle>& bundles) const {
  std::vector<std::int64_t> most_shares(all_.kinds.size(), 0);
  for (const ModuleChoice& choice : all_.choices) {
    // There are as many microbatches as the LLM's dp leaves samples for; beside an encoder it may be 1.
    const int most = module_ == Module::encoder ? request_.gbs : request_.gbs / choice.dp;
    std::int64_t& shares = most_shares[pipeline(choice).kind];
    shares = std::max(shares, std::int64_t{most} * choice.dp);
  }
  const std::vector<RepeatedLoad> all = loads(bundles);
  return CoarseDurations(most_shares, [&](int kind, std::int64_t shares) {
    double sum = 0;
    for (const RepeatedLoad& load : all) sum += load.items * duration(kind, shares, load);
    return sum;
  });
}

double ModuleDurations::duration(int kind, std::int64_t shares, const RepeatedLoad& load) const {
  const Workload share = share_of_bundle(load.work, load.items, request_.gbs, shares);
  const Work work = module_ == Module::encoder ? Work{share, {}} : Work{{}, share};
  const std::vector<Stage>& stages = all_.kinds[kind];
  const bool is_mean = load.items > 1 && by_ == BundleBy::mean;
  return (is_mean ? slowest_stage_floor : slowest_stage)(request_.cost, stages, work).count();
}

}  // namespace dflop
