#include "solver/planners/expected/module_durations.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "core/program/lowering.hpp"
#include "core/support/parallel.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/plan_problem/work.hpp"

namespace dflop {
namespace {

bool holds_no_more(const Stage& a, const Stage& b) {
  return a.encoder_layers <= b.encoder_layers && a.llm_layers <= b.llm_layers && a.connector <= b.connector &&
         a.embedding <= b.embedding && a.head <= b.head && a.front <= b.front;
}

std::vector<Stage> possibly_slowest(const std::vector<Stage>& stages) {
  std::vector<Stage> kept;
  for (const Stage& stage : stages) {
    const auto covers = [&](const Stage& other) { return holds_no_more(stage, other); };
    const auto covered = [&](const Stage& other) { return holds_no_more(other, stage); };
    if (std::any_of(kept.begin(), kept.end(), covers)) continue;
    std::erase_if(kept, covered);
    kept.push_back(stage);
  }
  return kept;
}

/// Returns the distinct stages of a pipeline.
std::vector<Stage> different(const std::vector<Stage>& stages) {
  std::vector<Stage> kept;
  for (const Stage& stage : stages) {
    if (std::find(kept.begin(), kept.end(), stage) == kept.end()) kept.push_back(stage);
  }
  return kept;
}

/// Returns the largest model state of any of the stages with this many dp ranks.
Bytes most_model_state(const CostModel& cost, std::vector<Stage> stages, int dp) {
  Bytes most;
  for (Stage& stage : stages) {
    stage.dp = dp;
    most = std::max(most, cost.model_state(stage).total());
  }
  return most;
}

/// Returns the index of a kind of pipeline, and adds it if it is new.
int kind_of(std::vector<std::vector<Stage>>& kinds, const std::vector<Stage>& stages) {
  const auto known = std::find(kinds.begin(), kinds.end(), stages);
  if (known != kinds.end()) return static_cast<int>(known - kinds.begin());
  kinds.push_back(stages);
  return static_cast<int>(kinds.size()) - 1;
}

/// Returns the stages of one module with dp 1; the other module is a single stage that is ignored.
std::vector<Stage> module_stages(const PlanRequest& request, Module module, int tp, int pp) {
  const bool is_encoder = module == Module::encoder;
  Plan plan = blank_plan(request, "");
  plan.encoder = even_module(request.model.encoder.layers, is_encoder ? tp : 1, is_encoder ? pp : 1, 1);
  plan.llm = even_module(request.model.llm.layers, is_encoder ? 1 : tp, is_encoder ? 1 : pp, 1);
  std::vector<Stage> stages = plan_stages(plan, request.model);
  stages.erase(is_encoder ? stages.end() - 1 : stages.begin());
  return stages;
}

using Loads = std::vector<Bundle>;  // of one item each

Workload mean_work(const Loads& loads, Workload Bundle::*module) {
  const auto mean = [&](const auto& count) {
    double sum = 0;  // counts of hostile records might overflow 64 bits
    for (const Bundle& load : loads) sum += static_cast<double>(count(load.*module));
    return static_cast<std::int64_t>(std::min(std::floor(sum / static_cast<double>(loads.size())), 4e18));
  };
  const auto second = [&](std::int64_t SecondWork::*count) {
    return mean([count](const Workload& work) { return work.second.*count; });
  };
  return {
      mean(std::mem_fn(&Workload::sequences)),
      mean(std::mem_fn(&Workload::tokens)),
      mean(std::mem_fn(&Workload::attention_pairs)),
      mean(std::mem_fn(&Workload::untrained_tokens)),
      {second(&SecondWork::sequences), second(&SecondWork::tokens), second(&SecondWork::attention_pairs)}};
}

Workload least_work(const Loads& loads, Workload Bundle::*module) {
  Workload work = loads.front().*module;
  for (const Bundle& load : loads) work = least(work, load.*module);
  return work;
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
  std::ranges::stable_sort(loads, {}, [&](const Bundle& load) { return (load.*first).all_tokens(); });
  const auto middle = loads.begin() + static_cast<std::ptrdiff_t>(loads.size() / 2);
  add_bundles({loads.begin(), middle}, halvings - 1, second, first, by, bundles);
  add_bundles({middle, loads.end()}, halvings - 1, second, first, by, bundles);
}

/// Returns the max over the stages; `seconds(stage)` returns the time of forward and backward.
template <typename Duration>
Seconds slowest_of(std::span<const Stage> stages, const Duration& seconds) {
  Seconds slowest{0};
  for (const Stage& stage : stages) slowest = std::max(slowest, seconds(stage));
  return slowest;
}

constexpr int kHalvings = 4;  // 16 bundles, more if some items lack a module

}  // namespace

ModulePlan even_module(int layers, int tp, int pp, int dp) {
  return {tp, pp, dp, split_layers(layers, pp)};
}

ModuleChoices module_choices(const PlanRequest& request, Module module) {
  const int layers = module == Module::encoder ? request.model.encoder.layers : request.model.llm.layers;
  const int most_dp = module == Module::encoder ? std::numeric_limits<int>::max() : request.gbs;
  const int most_ranks = request.cluster.gpus() - 1;
  ModuleChoices all;
  for (int tp = 1; tp <= request.cluster.gpus_per_node; ++tp) {
    if (request.cluster.gpus_per_node % tp != 0) continue;
    for (int pp = 1; pp <= layers && tp * pp <= most_ranks; ++pp) {
      const int pipeline = static_cast<int>(all.pipelines.size());
      const std::vector<Stage> stages = different(module_stages(request, module, tp, pp));
      all.pipelines.push_back({tp, pp, kind_of(all.kinds, possibly_slowest(stages))});
      for (int dp = 1; dp <= most_dp && tp * pp * dp <= most_ranks; ++dp) {
        all.choices.push_back({pipeline, dp, tp * pp * dp, most_model_state(request.cost, stages, dp)});
      }
    }
  }
  return all;
}

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

Workload share_of_batch(const Workload& sample, int gbs, std::int64_t shares) {
  const auto share = [&](std::int64_t count) {
    if (count == 0) return std::int64_t{0};
    constexpr double most = 4e18;  // attention pairs of hostile records times gbs would overflow 64 bits
    const double rounded = std::floor(static_cast<double>(count) * gbs / static_cast<double>(shares) + 0.5);
    return static_cast<std::int64_t>(std::clamp(rounded, 1.0, most));
  };
  return each_count(share, sample);
}

Workload share_of_bundle(const Workload& work, int items, int gbs, std::int64_t shares) {
  if (items == 1) return share_of_batch(work, gbs, shares);
  // share_of_batch() rounds by at most a half.
  const auto share = [&](std::int64_t count) {
    const double copies = static_cast<double>(count) * gbs / static_cast<double>(shares);
    return static_cast<std::int64_t>(std::clamp(std::floor(copies - 0.5), 0.0, 4e18));
  };
  Workload at_least = each_count(share, work);
  // Each item has work. If one encoder has all of it, each item has work of this encoder.
  if (work.tokens > 0 && work.second.tokens == 0)
    at_least.tokens = std::max<std::int64_t>(at_least.tokens, 1);
  if (work.second.tokens > 0 && work.tokens == 0)
    at_least.second.tokens = std::max<std::int64_t>(at_least.second.tokens, 1);
  return at_least;
}

Seconds slowest_stage(const CostModel& cost, std::span<const Stage> stages, const Work& work) {
  return slowest_of(stages, [&](const Stage& stage) { return cost.both_passes(stage, work); });
}

Seconds slowest_stage_floor(const CostModel& cost, std::span<const Stage> stages, const Work& work) {
  return slowest_of(stages, [&](const Stage& stage) {
    return *cost.convex_floor(Op::forward, stage, work) + *cost.convex_floor(Op::backward, stage, work);
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

// The mean of all items says much about their sum; the min of all of them says nothing.
PlanningItems::PlanningItems(std::span<const Sample> items, const CostModel& cost)
    : by(cost.convex_floor(Op::forward, Stage{}, Work{}) ? BundleBy::mean : BundleBy::least),
      coarse(bundle_items(items, by == BundleBy::mean ? 0 : kHalvings, by)),
      bundles(bundle_items(items, kHalvings, by)),
      single(single_items(items)) {}

ModuleDurations::ModuleDurations(const PlanRequest& request, const PlanningItems& items, Module module)
    : request_(request),
      module_(module),
      by_(items.by),
      all_(module_choices(request, module)),
      coarse_s_(coarse_sums(items.coarse)),
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

std::vector<std::vector<double>> ModuleDurations::coarse_sums(const std::vector<Bundle>& bundles) const {
  std::vector<std::int64_t> most_shares(all_.kinds.size(), 0);
  for (const ModuleChoice& choice : all_.choices) {
    // Each microbatch needs a sample for each dp rank of the LLM, which limits their number. For an encoder,
    // assume an LLM dp of 1.
    const int most = module_ == Module::encoder ? request_.gbs : request_.gbs / choice.dp;
    std::int64_t& shares = most_shares[pipeline(choice).kind];
    shares = std::max(shares, std::int64_t{most} * choice.dp);
  }
  std::vector<std::vector<double>> seconds(most_shares.size());
  std::vector<std::pair<int, int>> cells;  // kind and index
  for (std::size_t kind = 0; kind < most_shares.size(); ++kind) {
    const int last = share_grid::index_at_least(most_shares[kind]);
    seconds[kind].resize(last + 1);
    for (int index = 1; index <= last; ++index) cells.emplace_back(static_cast<int>(kind), index);
  }
  const std::vector<RepeatedLoad> all = loads(bundles);
  parallel_for(cells.size(), [&](std::size_t c) {
    const auto [kind, index] = cells[c];
    double sum = 0;
    for (const RepeatedLoad& load : all) sum += load.items * duration(kind, share_grid::value(index), load);
    seconds[kind][index] = sum;
  });
  return seconds;
}

double ModuleDurations::duration(int kind, std::int64_t shares, const RepeatedLoad& load) const {
  const Workload share = share_of_bundle(load.work, load.items, request_.gbs, shares);
  const Work work = module_ == Module::encoder ? Work{share, {}} : Work{{}, share};
  const std::vector<Stage>& stages = all_.kinds[kind];
  const bool is_mean = load.items > 1 && by_ == BundleBy::mean;
  const auto slowest = is_mean ? slowest_stage_floor : slowest_stage;
  return slowest(request_.cost, stages, work).count();
}

}  // namespace dflop
