#include "solver/planners/dflop/module_durations.hpp"

#include <algorithm>

#include "solver/planners/dflop/published_objective.hpp"

namespace dflop {
namespace {

constexpr int kHalvings = 4;  // 16 bundles, more where some items lack a module

BundleBy bundle_by(const CostModel& cost) {
  return cost.convex_floor(Op::forward, Stage{}, Work{}) ? BundleBy::mean : BundleBy::least;
}

}  // namespace

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
    // As many microbatches as the LLM's dp leaves samples for; beside an encoder it may be 1.
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
