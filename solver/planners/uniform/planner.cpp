#include "solver/planners/uniform/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "solver/plan_problem/trial.hpp"

namespace dflop {
namespace {

constexpr int kSomeChunks[] = {2, 4};   // of interleaved, unless the request fixes them
constexpr std::size_t kReordered = 64;  // plans that get all orders

/// A Split has the layers of encoder and LLM on every stage.
struct Split {
  std::vector<int> encoder;
  std::vector<int> llm;
};

std::vector<Split> split_by_count(const ModelSpec& model, int stages) {
  const int layers = model.encoder.layers + model.llm.layers;
  if (stages > layers) return {};
  Split split;
  int encoder_left = model.encoder.layers;
  for (const int count : split_layers(layers, stages)) {
    split.encoder.push_back(std::min(count, encoder_left));
    split.llm.push_back(count - split.encoder.back());
    encoder_left -= split.encoder.back();
  }
  return {split};
}

std::vector<Split> split_encoder_first(const ModelSpec& model, int stages) {
  const int layers = model.llm.layers;
  const int even = (layers + stages - 1) / stages;
  std::vector<int> kept = {even, even * 3 / 4, even / 2, even / 4, 0};
  if (stages == 1) kept = {layers};
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  std::vector<Split> splits;
  for (const int first : kept) {
    if (layers - first < stages - 1 || first + model.encoder.layers == 0) continue;
    Split split{std::vector<int>(stages, 0), {first}};
    split.encoder.front() = model.encoder.layers;
    if (stages > 1) {
      const std::vector<int> rest = split_layers(layers - first, stages - 1);
      split.llm.insert(split.llm.end(), rest.begin(), rest.end());
    }
    splits.push_back(std::move(split));
  }
  return splits;
}

/// Returns the numbers of microbatches to try. If dp divides the batch, these are the numbers that give all
/// microbatches equally many samples. Otherwise they are, of the numbers with the same whole number of
/// samples per microbatch, the largest.
std::vector<int> microbatch_counts(int gbs, int dp) {
  const int samples = gbs / dp;
  std::vector<int> counts;
  for (int m = 1; m <= samples; ++m) {
    const bool wanted = gbs % dp == 0 ? samples % m == 0 : m == samples / (samples / m);
    if (wanted) counts.push_back(m);
  }
  return counts;
}

/// A PipelineKind is an order of steps with its number of chunks.
struct PipelineKind {
  OrderKind order;
  int chunks;
};

/// Returns the permitted kinds, the plainest first.
std::vector<PipelineKind> open_kinds(const PlanRequest& request) {
  std::vector<PipelineKind> kinds;
  const std::vector<OrderKind> usual = {OrderKind::one_f_one_b, OrderKind::interleaved};
  for (const OrderKind order : request.search.orders.empty() ? usual : request.search.orders) {
    if (traits(order).spreads_encoder) continue;  // only the search makes such plans
    const int chunks = traits(order).chunks;
    if (chunks != OrderTraits::kSeveralChunks) {
      kinds.push_back({order, chunks});
    } else if (request.options.chunks > 1) {
      kinds.push_back({order, request.options.chunks});
    } else {
      for (const int some : kSomeChunks) kinds.push_back({order, some});
    }
  }
  return kinds;
}

std::vector<Split> splits_of(const ModelSpec& model, UniformSplit split, int stages) {
  return split == UniformSplit::by_count ? split_by_count(model, stages) : split_encoder_first(model, stages);
}

/// Returns whether the system that cuts layers in this way can interleave a number of microbatches. PyTorch's
/// ScheduleInterleaved1F1B needs groups of equal size, max(1, microbatches / pp) of them. Megatron-LM needs
/// at least pp microbatches; with --microbatch-group-size-per-virtual-pipeline-stage, pp need not divide
/// them.
bool can_interleave(UniformSplit split, int microbatches, int pp) {
  if (split == UniformSplit::by_count) return microbatches % std::max(1, microbatches / pp) == 0;
  return microbatches >= pp;
}

std::string no_configuration(const PlanRequest& request) {
  if (request.options.encoder_recomputation)
    return "uniform plans recompute the layers of encoder and LLM alike, found an encoder recomputation";
  if (open_kinds(request).empty()) {
    return fmt::format("uniform plans run in none of the orders {}", listed(names_of(request.search.orders)));
  }
  return fmt::format(
      "no tp x pp x dp uses all {} GPUs: tp must divide the GPUs of a node ({}), dp must be at most the "
      "global batch ({}), and the {} encoder and {} LLM layers must give each stage a layer{}",
      request.cluster.gpus(), request.cluster.gpus_per_node, request.gbs, request.model.encoder.layers,
      request.model.llm.layers, request.search.can_split ? ", and the model must be divisible by tp" : "");
}

/// Returns every parallelism of all GPUs that the request permits.
std::vector<ModulePlan> allowed_modules(const PlanRequest& request) {
  const int gpus = request.cluster.gpus();
  if (request.options.encoder_recomputation) return {};  // these plans have one recomputation
  std::vector<ModulePlan> modules = module_plans(request.cluster, gpus, gpus, request.gbs);
  const auto& can_split = request.search.can_split;
  if (can_split) std::erase_if(modules, [&](const ModulePlan& m) { return !can_split(m.tp, m.tp); });
  return modules;
}

/// Returns the plan with a module plan's parallelism and a split's layers.
Plan uniform_plan(Plan plan, const ModulePlan& module, const Split& layers, int microbatches) {
  plan.layout = Layout::uniform;
  plan.encoder = {module.tp, module.pp, module.dp, layers.encoder};
  plan.llm = {module.tp, module.pp, module.dp, layers.llm};
  plan.microbatches = microbatches;
  return plan;
}

/// Returns the plans with one sample in each microbatch, the smallest replica first.
std::map<int, std::vector<Plan>> hand_set_candidates(const PlanRequest& request) {
  const Plan blank = blank_plan(request, HandSetPlanner().name());
  std::map<int, std::vector<Plan>> of_replica;
  for (const ModulePlan& module : allowed_modules(request)) {
    const int microbatches = request.gbs / module.dp;
    const int stages = module.pp * blank.chunks;
    // Megatron-LM's default groups of microbatches have pp of them, and it rejects a smaller last group.
    if (traits(blank.order).in_rounds && microbatches % module.pp != 0) continue;
    const std::vector<Split> splits = split_encoder_first(request.model, stages);
    for (std::size_t s = 0; s < splits.size(); ++s) {
      if (s != 0 && s + 1 != splits.size()) continue;  // the even share and none
      of_replica[module.tp * module.pp].push_back(uniform_plan(blank, module, splits[s], microbatches));
    }
  }
  return of_replica;
}

/// Adds the plans with a parallelism, number of microbatches and order: one plan for each way to cut the
/// layers.
void add_plans(std::vector<Plan>& plans, const PlanRequest& request, UniformSplit split,
               const ModulePlan& module, int microbatches, const PipelineKind& kind) {
  if (traits(kind.order).in_rounds && !can_interleave(split, microbatches, module.pp)) return;
  Plan blank = blank_plan(request, UniformPlanner(split).name());
  blank.order = kind.order;
  blank.chunks = kind.chunks;
  for (const Split& layers : splits_of(request.model, split, module.pp * kind.chunks))
    plans.push_back(uniform_plan(blank, module, layers, microbatches));
}

/// Returns the plans with the parallelism and numbers of microbatches of leaders, in all other orders.
std::vector<Plan> in_other_orders(const PlanRequest& request, UniformSplit split,
                                  const std::vector<Plan>& leaders) {
  const std::vector<PipelineKind> kinds = open_kinds(request);
  std::set<std::tuple<int, int, int, int>> seen;
  std::vector<Plan> plans;
  for (const Plan& plan : leaders) {
    const auto& [tp, pp, dp, layers] = plan.llm;
    if (pp == 1 || !seen.emplace(tp, pp, dp, plan.microbatches).second) continue;
    for (std::size_t k = 1; k < kinds.size(); ++k)
      add_plans(plans, request, split, plan.llm, plan.microbatches, kinds[k]);
  }
  return plans;
}

}  // namespace

std::vector<Plan> uniform_candidates(const PlanRequest& request, UniformSplit split) {
  std::vector<Plan> candidates;
  const std::vector<PipelineKind> kinds = open_kinds(request);
  if (kinds.empty()) return candidates;
  for (const ModulePlan& module : allowed_modules(request)) {
    for (const int microbatches : microbatch_counts(request.gbs, module.dp))
      add_plans(candidates, request, split, module, microbatches, kinds.front());
  }
  return candidates;
}

PlanResult UniformPlanner::plan(const PlanRequest& request) const {
  check_batches(request);
  const std::vector<Plan> candidates = uniform_candidates(request, split_);
  if (candidates.empty()) {
    PlanResult result;
    result.infeasible_reason = no_configuration(request);
    return result;
  }
  CandidateRace race(request, filter_);
  race.add(candidates);
  race.add(in_other_orders(request, split_, race.leaders(kReordered)));
  return race.best();
}

PlanResult HandSetPlanner::plan(const PlanRequest& request) const {
  check_batches(request);
  PlanRequest by_hand = request;
  SearchOptions& parts = by_hand.search;
  if (parts.recomputations.empty()) parts.recomputations = {Recomputation::full};
  if (parts.placements.empty()) parts.placements = {RankOrder::stage_major};
  if (parts.gradient_buckets.empty()) parts.gradient_buckets = {free_parts(request).gradient_buckets.front()};
  PlanResult result;
  result.infeasible_reason = no_configuration(request);
  std::int64_t looked_at = 0;
  for (auto& [replica, candidates] : hand_set_candidates(by_hand)) {
    CandidateRace race(by_hand, filter_);
    race.add(std::move(candidates));
    result = race.best();
    looked_at += result.candidates;
    if (result.plan) break;
  }
  result.candidates = looked_at;
  return result;
}

}  // namespace dflop
