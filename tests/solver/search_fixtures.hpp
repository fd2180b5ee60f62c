// Requests for the joint planner: small ones solved by enumeration, and real presets.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/analytic/analytic.hpp"
#include "solver/planners/search/cuts.hpp"
#include "solver/planners/search/space.hpp"
#include "tests/solver/fixtures.hpp"
#include "traces/data/records.hpp"
#include "traces/files/specs.hpp"
#include "traces/preprocess/preprocess.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {

/// The linear model plus the trade-offs of a joint planner: recomputation costs time and saves memory;
/// reductions and optimizer steps take time. It is affine in the work, and so its own convex floor.
class SearchCostModel final : public CostModel {
 public:
  LinearCostModel linear;
  double reduction_s = 0;  ///< of each participant
  double step_s = 0;       ///< of each layer
  /// If set, stages may have shares. This fraction of a whole GPU's time is arithmetic, and traffic takes all
  /// of the time in parallel. A third of the GPU saturates the memory.
  std::optional<double> arithmetic = {};
  int quanta = 0;  ///< that prices at shares are of

  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    const bool again = op == Op::backward || op == Op::backward_input;
    const double factor = again ? 1 + 0.25 * static_cast<int>(stage.recomputation) : 1;
    return slowdown(stage) * factor * linear.compute(op, stage, work);
  }
  bool knows_shares() const override { return arithmetic.has_value(); }
  int share_quanta() const override { return quanta; }
  double bandwidth(Op, const Stage& stage, const Work&) const override { return 1 / slowdown(stage); }
  double slowdown(const Stage& stage) const {
    return stage.share == 1 ? 1 : std::max(*arithmetic / stage.share, std::max(1.0, 1 / (3 * stage.share)));
  }
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override {
    return compute(op, stage, work);
  }
  Seconds message(const Message&, const Program&) const override { return Seconds(0); }
  Seconds all_reduce(const Collective& collective, const Program&) const override {
    return Seconds(reduction_s * static_cast<double>(collective.groups.size()));
  }
  Seconds optimizer_step(const Stage& stage) const override {
    return Seconds(step_s * (stage.encoder_layers + stage.llm_layers) / stage.tp);
  }
  ModelState model_state(const Stage& stage) const override { return linear.model_state(stage); }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return {linear.activation(stage, work).count / (1 + static_cast<int>(stage.recomputation))};
  }
  Bytes workspace(Op, const Stage&, const Work&) const override { return {}; }
};

/// A small model on a few GPUs.
struct SmallSearch {
  ModelSpec model;
  ClusterSpec cluster;
  SearchCostModel cost;
  SimExecutor executor;
  int gbs;
  std::vector<Batch> batches;
  SearchOptions search;

  SmallSearch(int encoder_layers, int llm_layers, int nodes, int gpus_per_node, int batch, int iterations,
              std::uint64_t seed)
      : model(small_model(encoder_layers, llm_layers)),
        cluster(small_cluster(nodes, gpus_per_node, std::int64_t{1} << 30)),
        gbs(batch) {
    Random random(seed);
    for (int i = 0; i < iterations; ++i) batches.push_back(small_random_batch(random, gbs));
    cost.linear.pass_s = 1e-2 * static_cast<double>(random.below(5));
    cost.linear.head_layers = static_cast<int>(random.below(3));
    cost.reduction_s = 1e-2 * static_cast<double>(random.below(20));
    cost.step_s = 1e-2 * static_cast<double>(random.below(5));
  }

  PlanRequest request() const {
    return {{model, cluster, cost}, executor, gbs, {}, batches, 1, {}, {}, search};
  }
};

/// A preset on a cluster, with global batches of a data set.
struct PresetSearch {
  ModelSpec model;
  ClusterSpec cluster;
  AnalyticCostModel cost;
  SimExecutor executor;
  int gbs;
  std::vector<Batch> batches;

  static std::string preset(const std::string& name) {
    return read_text_file(DFLOP_SOURCE_DIR "/experiments/presets/" + name + ".json");
  }
  static ClusterSpec nodes_of(const std::string& name, int nodes) {
    ClusterSpec cluster = parse_cluster(preset("clusters/" + name), name);
    cluster.nodes = nodes;
    return cluster;
  }

  PresetSearch(const std::string& model_name, const std::string& data, int nodes, int batch, int iterations)
      : PresetSearch(model_name, data, nodes_of("a100-80g-vtrain", nodes), batch, iterations) {}

  PresetSearch(const std::string& model_name, const std::string& data, ClusterSpec on, int batch,
               int iterations)
      : model(parse_model(preset("models/" + model_name), model_name)),
        cluster(std::move(on)),
        cost(model, cluster),
        gbs(batch) {
    const std::string file = DFLOP_SOURCE_DIR "/traces/datasets/" + data + ".csv";
    PreprocessOptions options;
    options.rule = model.preprocess;
    options.max_tokens = model.max_tokens;
    options.modalities = rule_modalities(model.preprocess);
    const std::vector<Sample> samples = preprocess(load_records(file), options, file).samples;
    Random random(7);
    for (int i = 0; i < iterations; ++i) {
      Batch& drawn = batches.emplace_back();
      for (int k = 0; k < gbs; ++k) drawn.push_back(samples[random.below(samples.size())]);
    }
  }

  PlanRequest request() const { return {{model, cluster, cost}, executor, gbs, {}, batches, 1, {}, {}, {}}; }
};

/// Runs one iteration under an assignment, in the order that planners use.
inline Timeline run_plan(const PlanRequest& request, const Plan& plan, const Batch& batch,
                         const Assignment& assignment) {
  return request.executor.run(make_iteration(request, plan, batch, assignment), Detail::usage);
}

/// All plans of a space, with every cut of their layers.
inline std::vector<Plan> all_plans(const SearchSpace& space, const ModelSpec& model,
                                   std::vector<Plan> plans = {}) {
  for (const SearchShape& shape : space.shapes()) {
    for (const int m : space.microbatches(shape)) {
      for (const Recomputation r : space.recomputations()) {
        for (const SearchVariant& variant : space.variants(shape, m)) {
          const auto plan = space.plan(shape, r, m, variant);
          if (plan) std::ranges::move(all_cuts(*plan, model), std::back_inserter(plans));
        }
      }
    }
  }
  return plans;
}

/// Draws a plan of a space with any cut of its layers, and its shape; nothing if there are too few layers.
inline std::optional<std::pair<SearchShape, Plan>> draw_plan(const SearchSpace& space, const ModelSpec& model,
                                                             Random& random) {
  const SearchShape& shape = space.shapes()[random.below(space.shapes().size())];
  const std::vector<int> counts = space.microbatches(shape);
  const int m = counts[random.below(counts.size())];
  const std::vector<SearchVariant> variants = space.variants(shape, m);
  const Recomputation r = space.recomputations()[random.below(space.recomputations().size())];
  const auto plan = space.plan(shape, r, m, variants[random.below(variants.size())]);
  if (!plan) return std::nullopt;
  std::vector<std::vector<int>> sizes;
  for (const LayerChain& chain : layer_chains(*plan, model)) {
    std::vector<int>& pieces = sizes.emplace_back(chain.pieces, 1);
    // Half of the cuts are near the balanced one, half are arbitrary.
    for (int left = chain.layers() - chain.pieces; left > 0; --left) ++pieces[random.below(pieces.size())];
  }
  Plan cut = with_cuts(*plan, model, sizes);
  if (random.below(2) == 0) {
    cut = *plan;
    for (int k = 0; k < 3; ++k) {
      std::vector<Plan> moved = moved_by_one_layer(cut, model);
      if (!moved.empty()) cut = std::move(moved[random.below(moved.size())]);
    }
  }
  if (cut.layout != Layout::uniform && space.recomputations().size() > 1 && random.below(3) == 0) {
    cut.encoder_recomputation = space.recomputations()[random.below(space.recomputations().size())];
    if (cut.encoder_recomputation == cut.recomputation) cut.encoder_recomputation.reset();
  }
  return std::pair(shape, std::move(cut));
}

}  // namespace dflop::testing
