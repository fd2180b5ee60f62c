#include "solver/planners/search/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "core/order/pipeline_order.hpp"
#include "core/quanta.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/plan_problem/trial.hpp"

namespace dflop {
namespace {

constexpr int kChunks = 2;  // of interleaved, unless more are requested

/// Returns the seconds that each layer adds to its stage, encoder layers first. Layers next to the front,
/// connector, embedding or head include their time.
std::vector<double> layer_seconds(const PlanRequest& request, const Plan& plan, const Work& work,
                                  bool with_encoder, bool with_llm) {
  Stage stage;
  stage.sequence_parallel = plan.sequence_parallel;
  stage.trained = plan.trained;
  const auto seconds = [&](const Stage& s, const Work& load) {
    return request.cost.both_passes(s, load).count();
  };
  std::vector<double> items;
  if (with_encoder) {
    const Work load{work.encoder, {}};
    stage.tp = plan.encoder.tp;
    stage.recomputation = recomputation_of(plan, plan.layout != Layout::uniform);
    if (plan.layout == Layout::shared) stage.share = plan.encoder_share;
    stage.encoder_layers = 1;
    const double one = seconds(stage, load);
    items.assign(request.model.encoder.layers, one);
    stage.connector = request.model.connector.widths.size() > 1;
    if (!items.empty()) items.back() = seconds(stage, load);
    stage.connector = false;
    stage.front = request.model.architecture.has_value();
    if (!items.empty() && stage.front) items.front() += seconds(stage, load) - one;
    stage.front = false;
  }
  if (!with_llm) return items;
  const Work load{{}, work.llm};
  stage.encoder_layers = 0;
  stage.connector = false;
  stage.tp = plan.llm.tp;
  stage.recomputation = plan.recomputation;
  if (plan.layout == Layout::shared) stage.share = 1 - plan.encoder_share;
  stage.llm_layers = 1;
  const double one = seconds(stage, load);
  const std::size_t first = items.size();
  items.insert(items.end(), request.model.llm.layers, one);
  stage.embedding = true;
  items[first] += seconds(stage, load) - one;
  stage.embedding = false;
  stage.head = true;
  items.back() += seconds(stage, load) - one;
  return items;
}

}  // namespace

SearchSpace::SearchSpace(const PlanRequest& request, SpacePart part)
    : request_(request),
      part_(part),
      total_(total_work(request.batches.front())),
      parts_(free_parts(request)) {
  for (const OrderKind order : plainest_first(all_order_kinds())) {
    if (has(order)) orders_.push_back(&traits(order));
  }
  std::stable_partition(orders_.begin(), orders_.end(),
                        [](const OrderTraits* order) { return order->is_searched; });
  std::stable_partition(orders_.begin(), orders_.end(),
                        [](const OrderTraits* order) { return !order->has_chunks(); });
  const auto is_colocated = [](const OrderTraits* order) { return fits(*order, Layout::colocated); };
  if (has(Layout::disaggregated)) add_disaggregated();
  if (has(Layout::shared)) add_shared();
  if (has(Layout::uniform)) add_uniform(Layout::uniform);
  if (has(Layout::colocated) && std::any_of(orders_.begin(), orders_.end(), is_colocated))
    add_uniform(Layout::colocated);
  std::erase_if(shapes_, [&](const SearchShape& shape) { return !splits(shape.encoder.tp, shape.llm.tp); });
}

bool SearchSpace::splits(int encoder_tp, int llm_tp) const {
  return !request_.search.can_split || request_.search.can_split(encoder_tp, llm_tp);
}

bool SearchSpace::has(Layout layout) const {
  if ((layout == Layout::shared) != (part_ == SpacePart::shared)) return false;
  if (layout == Layout::uniform && request_.options.encoder_recomputation) return false;
  const bool knows = layout != Layout::shared ||
                     (request_.search.shared && request_.cost.knows_shares() && !request_.cluster.is_mixed());
  return knows && may_be(request_.search.layouts, layout);
}

bool SearchSpace::has(OrderKind order) const {
  if (!traits(order).is_searched && request_.search.orders.empty()) return false;
  return may_be(request_.search.orders, order);
}

void SearchSpace::add_disaggregated() {
  const ClusterSpec& cluster = request_.cluster;
  const ModelSpec& model = request_.model;
  if (model.encoder.layers == 0) return;
  for (int encoder_tp = 1; encoder_tp <= cluster.gpus_per_node; ++encoder_tp) {
    if (cluster.gpus_per_node % encoder_tp != 0) continue;
    for (int encoder_pp = 1; encoder_pp <= model.encoder.layers; ++encoder_pp) {
      const int step = encoder_tp * encoder_pp;
      for (int ranks = step; ranks < cluster.gpus(); ranks += step) {
        const ModulePlan encoder{encoder_tp, encoder_pp, ranks / step, {}};
        if (!request_.search.wish.encoder.grants(encoder)) continue;
        for (const ModulePlan& llm :
             modules(request_.search.wish.llm, cluster.gpus() - ranks, model.llm.layers, request_.gbs)) {
          shapes_.push_back({Layout::disaggregated, encoder, llm});
        }
      }
    }
  }
}

/// Returns the encoder's shares of a GPU, in eighths, that leave each module at least one quantum. Of shares
/// that round to the same number of quanta, both of the GPU and of the cost model (if known), returns only
/// the smallest.
std::vector<double> SearchSpace::shares() const {
  constexpr int kShares = 8;
  const int priced = request_.cost.share_quanta();
  std::vector<double> shares;
  std::pair<double, int> last;
  for (int eighths = 1; eighths < kShares; ++eighths) {
    const double share = static_cast<double>(eighths) / kShares;
    const GrantedShares granted = granted_shares(request_.cluster.gpu, share);
    if (granted.encoder <= 0 || granted.llm <= 0) continue;
    const bool by_gpu = request_.cluster.gpu.multiprocessors > 0 || priced < 2;
    const std::pair quanta(by_gpu ? granted.encoder : 0, priced < 2 ? 0 : encoder_quanta(priced, share));
    if (shares.empty() || quanta != last) shares.push_back(share);
    last = quanta;
  }
  return shares;
}

/// Adds plans whose modules each use all GPUs, or equally many.
void SearchSpace::add_shared() {
  const ModelSpec& model = request_.model;
  const int gpus = request_.cluster.gpus();
  if (model.encoder.layers == 0) return;
  const std::vector<double> encoder_shares = shares();
  for (const ModulePlan& llm : modules(request_.search.wish.llm, gpus, model.llm.layers, request_.gbs)) {
    for (const ModulePlan& encoder :
         module_plans(request_.cluster, llm.ranks(), model.encoder.layers, gpus)) {
      if (!request_.search.wish.encoder.grants(encoder)) continue;
      for (const double share : encoder_shares) shapes_.push_back({Layout::shared, encoder, llm, share});
    }
  }
}

/// Returns the module plans that satisfy a wish and use at most `gpus` GPUs. They use all of these GPUs,
/// unless the wish fixes dp, or fixes tp and pp and no dp uses all GPUs.
std::vector<ModulePlan> SearchSpace::modules(const ModuleWish& wish, int gpus, int most_pp,
                                             int most_dp) const {
  std::vector<ModulePlan> granted = module_plans(request_.cluster, gpus, most_pp, most_dp);
  std::erase_if(granted, [&](const ModulePlan& module) { return !wish.grants(module); });
  const bool may_leave_some = wish.dp || (wish.tp && wish.pp);
  if (!granted.empty() || !may_leave_some) return granted;
  for (int used = gpus - 1; used > 0 && granted.empty(); --used) {
    granted = module_plans(request_.cluster, used, most_pp, most_dp);
    std::erase_if(granted, [&](const ModulePlan& module) { return !wish.grants(module); });
  }
  return granted;
}

void SearchSpace::add_uniform(Layout layout) {
  const bool colocated = layout == Layout::colocated;
  if (colocated && request_.model.encoder.layers == 0) return;
  const ModuleWish& wish = request_.search.wish.encoder;
  if (!colocated && !wish.is_empty()) return;  // it has no parallelism of its own
  const int layers = request_.model.llm.layers + (colocated ? 0 : request_.model.encoder.layers);
  for (const ModulePlan& llm :
       modules(request_.search.wish.llm, request_.cluster.gpus(), layers, request_.gbs)) {
    if (!colocated) {
      shapes_.push_back({layout, llm, llm});
      continue;
    }
    std::set<int, std::greater<>> tps = {llm.tp};
    if (tries_encoder_grids(request_)) tps.insert(1);
    if (wish.tp) tps = {*wish.tp};
    for (const int tp : tps) {
      if (llm.tp % tp != 0) continue;
      const ModulePlan encoder{tp, 1, llm.ranks() / tp, {}};
      if (!wish.grants(encoder)) continue;
      if (llm.pp > 1 || tp < llm.tp) shapes_.push_back({layout, encoder, llm});  // otherwise it is uniform
    }
  }
}

std::vector<int> SearchSpace::microbatches(const SearchShape& shape) const {
  const int most = request_.gbs / shape.llm.dp;
  std::vector<int> counts;
  if (const std::optional<int> wished = request_.search.wish.microbatches) {
    if (*wished <= most) counts.push_back(*wished);
    return counts;
  }
  for (int octave = 4; octave <= most || octave == 4; octave *= 2) {
    for (int m = octave == 4 ? 1 : octave; m < 2 * octave; m += octave / 4) {
      if (m <= most) counts.push_back(m);
    }
  }
  if (counts.back() != most) counts.push_back(most);
  return counts;
}

int SearchSpace::chunks_of(const OrderTraits& order) const {
  if (order.chunks != OrderTraits::kSeveralChunks) return order.chunks;
  return request_.options.chunks > 1 ? request_.options.chunks : kChunks;
}

std::vector<SearchVariant> SearchSpace::variants(const SearchShape& shape, int microbatches) const {
  std::vector<SearchVariant> variants;
  const bool one_rank = shape.layout == Layout::uniform && shape.llm.pp == 1;
  // If a tp group fills a node, all placements are alike.
  const bool fills_nodes = std::min(shape.encoder.tp, shape.llm.tp) == request_.cluster.gpus_per_node;
  const auto add = [&](OrderKind order, int chunks) {
    for (const RankOrder placement : parts_.placements) {
      const bool is_plain = placement == parts_.placements.front();
      if (is_plain || !(fills_nodes || one_rank)) variants.push_back({order, chunks, placement});
    }
  };
  // On one rank all orders are the same, except that chunks need less memory at a time.
  const auto is_known = [&](const OrderTraits& order) {
    const auto is_alike = [&](const SearchVariant& known) {
      return (known.chunks > 1) == order.has_chunks();
    };
    return one_rank && std::ranges::any_of(variants, is_alike);
  };
  const int ranks = shape.llm.pp + (has_encoder_ranks(shape.layout) ? shape.encoder.pp : 0);
  for (const OrderTraits* order : orders_) {
    if (is_known(*order) || !fits(*order, shape.layout)) continue;
    const OrderKind acts_as = order->acts_as == nullptr ? order->kind : order->acts_as(ranks, microbatches);
    if (acts_as != order->kind && has(acts_as)) continue;
    if (order->has_chunks() && shape.llm.pp == 1 && !one_rank) continue;
    const bool is_wished = request_.search.wish.microbatches.has_value();
    if (order->in_rounds && !is_wished && microbatches % shape.llm.pp != 0) continue;
    add(order->kind, chunks_of(*order));
  }
  return variants;
}

namespace {

/// Returns some of `counts`, which are increasing numbers of microbatches: the plan's own, its neighbors, and
/// the numbers nearest to half and twice its own.
std::vector<int> counts_near(const std::vector<int>& counts, int own) {
  std::set<int> near = {own};
  const auto above = std::ranges::upper_bound(counts, own);
  const auto below = std::ranges::lower_bound(counts, own);
  if (above != counts.end()) near.insert(*above);
  if (below != counts.begin()) near.insert(*std::prev(below));
  const auto half = std::ranges::lower_bound(counts, (own + 1) / 2);
  const auto twice = std::ranges::lower_bound(counts, 2 * own);
  if (half != counts.end()) near.insert(*half);
  if (twice != counts.end()) near.insert(*twice);
  return {near.begin(), near.end()};
}

}  // namespace

std::vector<Plan> SearchSpace::variations(const Plan& plan) const {
  SearchShape shape{plan.layout, plan.encoder, plan.llm, plan.encoder_share};
  shape.encoder.layers.clear();
  shape.llm.layers.clear();
  std::vector<Plan> others;
  const auto add = [&](int microbatches, const SearchVariant& variant) {
    Plan other = plan;
    other.microbatches = microbatches;
    other.order = variant.order;
    other.chunks = variant.chunks;
    other.placement = variant.placement;
    if (variant.chunks != plan.chunks) {
      const std::optional<Plan> cut = this->plan(shape, plan.recomputation, microbatches, variant);
      if (!cut) return;
      other.encoder = cut->encoder;
      other.llm = cut->llm;
    }
    if (other != plan) others.push_back(std::move(other));
  };
  for (const int count : counts_near(microbatches(shape), plan.microbatches)) {
    for (const SearchVariant& variant : variants(shape, count)) {
      if (count == plan.microbatches || variant.placement == plan.placement) add(count, variant);
    }
  }
  for (const Recomputation recomputation : recomputations()) {
    if (recomputation == plan.recomputation) continue;
    Plan& other = others.emplace_back(plan);
    other.recomputation = recomputation;
    if (other.encoder_recomputation == recomputation) other.encoder_recomputation.reset();
  }
  if (plan.layout == Layout::uniform || !chooses_encoder_recomputation(request_)) return others;
  for (const Recomputation recomputation : recomputations()) {
    if (recomputation == recomputation_of(plan, true)) continue;
    others.emplace_back(plan).encoder_recomputation = recomputation;
    if (recomputation == plan.recomputation) others.back().encoder_recomputation.reset();
  }
  return others;
}

std::optional<Plan> SearchSpace::cut(const Plan& plan, const StageFits& fits) const {
  const int encoder_dp = encoder_parts(plan);
  const Work mean{mean_part(total_.encoder, std::int64_t{plan.microbatches} * encoder_dp),
                  mean_part(total_.llm, plan.bins())};
  std::vector<std::vector<int>> sizes;
  for (const LayerChain& chain : layer_chains(plan, request_.model)) {
    const auto piece_fits = [&](int piece, int first, int last) {
      return fits(chain.first_stage + piece, piece_stage(plan, request_.model, chain, first, last));
    };
    std::optional<std::vector<int>> pieces =
        cut_evenly(layer_seconds(request_, plan, mean, chain.encoder_layers > 0, chain.llm_layers > 0),
                   chain.pieces, fits ? PieceFits(piece_fits) : PieceFits());
    if (!pieces) return std::nullopt;
    sizes.push_back(*std::move(pieces));
  }
  return with_cuts(plan, request_.model, sizes);
}

Plan SearchSpace::cut_by_count(const Plan& plan) const {
  std::vector<std::vector<int>> sizes;
  for (const LayerChain& chain : layer_chains(plan, request_.model))
    sizes.push_back(split_layers(chain.layers(), chain.pieces));
  return with_cuts(plan, request_.model, sizes);
}

std::optional<Plan> SearchSpace::plan(const SearchShape& shape, Recomputation recomputation, int microbatches,
                                      const SearchVariant& variant) const {
  const bool uniform = shape.layout == Layout::uniform;
  const int layers = request_.model.llm.layers + (uniform ? request_.model.encoder.layers : 0);
  if (shape.llm.pp * variant.chunks > layers) return std::nullopt;
  Plan plan = blank_plan(request_, "search");
  plan.layout = shape.layout;
  plan.encoder = shape.encoder;
  plan.llm = shape.llm;
  plan.encoder_share = shape.encoder_share;
  plan.microbatches = microbatches;
  plan.order = variant.order;
  plan.chunks = variant.chunks;
  plan.placement = variant.placement;
  plan.gradient_bucket = parts_.gradient_buckets.front();
  plan.recomputation = recomputation;
  return cut(plan);
}

bool SearchSpace::is_empty() const {
  return std::ranges::all_of(shapes_, [&](const SearchShape& shape) { return microbatches(shape).empty(); });
}

std::int64_t SearchSpace::size() const {
  std::int64_t count = 0;
  for (const SearchShape& shape : shapes_) {
    for (const int m : microbatches(shape)) {
      count += static_cast<std::int64_t>(variants(shape, m).size() * recomputations().size());
    }
  }
  return count;
}

namespace {

/// Returns why a module cannot satisfy a wish by itself; empty if it can.
std::string broken_wish(const ModuleWish& wish, const char* prefix, const ClusterSpec& cluster, int layers) {
  const int tp = wish.tp.value_or(1);
  const int pp = wish.pp.value_or(std::min(layers, 1));
  const int dp = wish.dp.value_or(1);
  if (cluster.gpus_per_node % tp != 0)
    return fmt::format("--{}tp {} does not divide the {} GPUs of a node", prefix, tp, cluster.gpus_per_node);
  if (pp > layers) return fmt::format("--{}pp {} is more than the number of layers, {}", prefix, pp, layers);
  if (std::int64_t{tp} * pp * dp > cluster.gpus()) {
    return fmt::format("--{0}tp {1}, --{0}pp {2} and --{0}dp {3} need {4} GPUs, but there are {5}", prefix,
                       tp, pp, dp, std::int64_t{tp} * pp * dp, cluster.gpus());
  }
  return "";
}

}  // namespace

std::string SearchSpace::broken_order(int layers) const {
  const std::vector<OrderKind>& orders = request_.search.orders;
  if (orders.size() != 1 || !traits(orders.front()).has_chunks()) return "";
  const int chunks = chunks_of(traits(orders.front()));
  const int ranks = request_.search.wish.llm.pp.value_or(1);
  if (std::int64_t{ranks} * chunks <= layers) return "";
  return fmt::format(
      "--pipeline-schedule {} has {} stages on each of {} pipeline rank{}, more than the {} layers",
      to_string(orders.front()), chunks, ranks, ranks == 1 ? "" : "s", layers);
}

std::string SearchSpace::empty_reason() const {
  const PlanWish& wish = request_.search.wish;
  const ModelSpec& model = request_.model;
  const bool apart =
      part_ == SpacePart::shared || request_.search.layouts == std::vector{Layout::disaggregated};
  const int layers = model.llm.layers + (apart ? 0 : model.encoder.layers);
  for (const std::string& broken :
       {broken_wish(wish.llm, "", request_.cluster, layers),
        broken_wish(wish.encoder, "encoder-", request_.cluster, model.encoder.layers)}) {
    if (!broken.empty()) return broken;
  }
  if (wish.microbatches && std::int64_t{*wish.microbatches} * wish.llm.dp.value_or(1) > request_.gbs) {
    return fmt::format("--microbatches {} of {} dp ranks need {} samples, but the global batch has {}",
                       *wish.microbatches, wish.llm.dp.value_or(1),
                       std::int64_t{*wish.microbatches} * wish.llm.dp.value_or(1), request_.gbs);
  }
  if (const std::string broken = broken_order(layers); !broken.empty()) return broken;
  const auto any_of = [](const auto& list) { return list.empty() ? "any" : listed(names_of(list)); };
  std::string reason = "no plan on " + std::to_string(request_.cluster.gpus()) + " GPUs has layout " +
                       any_of(request_.search.layouts) + " and order " + any_of(request_.search.orders) +
                       ", a layer for each stage and a sample for each microbatch of a dp rank";
  if (request_.search.can_split) reason += ", and a tp over which the model can be split";
  if (part_ == SpacePart::shared) {
    if (!request_.cost.knows_shares()) reason += "; the profile has no durations at shares of GPUs";
    if (request_.cluster.is_mixed()) reason += "; shares need GPUs of one type";
  }
  if (may_be(request_.search.layouts, Layout::colocated) && !request_.search.layouts.empty())
    reason +=
        "; colocated plans have at least 2 pipeline stages, or an encoder with a smaller tp than the LLM's, "
        "and one of the orders " +
        listed(names_of(orders_where([](const OrderTraits& order) { return order.spreads_encoder; })));
  return reason;
}

bool SearchSpace::allows(const Plan& plan) const {
  const SearchOptions& open = request_.search;
  const bool has_grid = plan.layout != Layout::colocated || open.wish.encoder.tp ||
                        plan.encoder.tp == plan.llm.tp ||
                        (plan.encoder.tp == 1 && tries_encoder_grids(request_));
  return has_grid && has(plan.layout) && open.wish.grants(plan) && splits(plan.encoder.tp, plan.llm.tp) &&
         may_be(open.orders, plan.order) && fits(traits(plan.order), plan.layout) &&
         may_be(open.recomputations, plan.recomputation) && may_be(open.placements, plan.placement) &&
         may_be(open.gradient_buckets, plan.gradient_bucket) && plan.gbs == request_.gbs &&
         (plan.encoder_recomputation == request_.options.encoder_recomputation ||
          chooses_encoder_recomputation(request_)) &&
         plan.share_rule == request_.options.share_rule && plan.zero1 == request_.options.zero1 &&
         plan.sequence_parallel == request_.options.sequence_parallel &&
         plan.optimizer_states == request_.options.optimizer_states &&
         plan.reshard == request_.options.reshard && plan.trained == request_.options.trained;
}

}  // namespace dflop
