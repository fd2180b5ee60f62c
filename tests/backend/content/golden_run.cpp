#include "tests/backend/content/golden_run.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "backend/content/folder_weights.hpp"
#include "backend/model/parameter_list.hpp"
#include "core/program/lowering.hpp"
#include "tests/backend/run/live_plans.hpp"

namespace dflop::testing {
namespace {

Plan golden_uniform(const ModelSpec& model, int tp, int pp, int dp, int microbatches) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {tp, pp, dp, std::vector<int>(static_cast<std::size_t>(pp), 0)};
  plan.encoder.layers.front() = model.encoder.layers;
  plan.llm = {tp, pp, dp, split_layers(model.llm.layers, pp)};
  plan.microbatches = microbatches;
  plan.recomputation = Recomputation::none;
  plan.sequence_parallel = false;
  return plan;
}

Plan golden_apart(const ModelSpec& model, ModulePlan encoder, ModulePlan llm, int microbatches) {
  Plan plan = golden_uniform(model, 1, 1, 1, microbatches);
  plan.layout = Layout::disaggregated;
  encoder.layers = split_layers(model.encoder.layers, encoder.pp);
  llm.layers = split_layers(model.llm.layers, llm.pp);
  plan.encoder = encoder;
  plan.llm = llm;
  return plan;
}

}  // namespace

namespace {

/// Returns ways in which deep features pass stages of the encoder and of the LLM.
std::vector<GoldenWay> deep_ways(const ModelSpec& model) {
  std::vector<GoldenWay> ways{{"pp 3", golden_uniform(model, 1, 3, 1, 2)}};
  GoldenWay both{"pp 4, encoder over two stages", golden_uniform(model, 1, 4, 1, 2)};
  both.plan.encoder.layers = {1, model.encoder.layers - 1, 0, 0};
  both.plan.llm.layers = {0, 0, 1, model.llm.layers - 1};
  ways.push_back(both);
  both.name += ", split backward";
  both.plan.order = OrderKind::zb_h1;
  ways.push_back(both);
  return ways;
}

}  // namespace

std::vector<GoldenWay> golden_ways(const ModelSpec& model) {
  const bool encodes = model.encoder.layers > 0;
  const int encoder_tp = encodes && is_splittable(model, 2, 1) ? 2 : 1;
  const int llm_tp = is_splittable(model, 1, 2) ? 2 : 1;
  const bool splits = llm_tp == 2 && (encoder_tp == 2 || !encodes);
  std::vector<GoldenWay> all{{"one rank", golden_uniform(model, 1, 1, 1, 1)},
                             {"dp 2", golden_uniform(model, 1, 1, 2, 1)}};
  all.push_back({"full recomputation", golden_uniform(model, 1, 1, 1, 2)});
  all.back().plan.recomputation = Recomputation::full;
  all.push_back({"selective recomputation", golden_uniform(model, 1, 1, 1, 2)});
  all.back().plan.recomputation = Recomputation::selective;
  if (splits) {
    all.push_back({"tp 2", golden_uniform(model, 2, 1, 1, 1)});
    all.push_back({"tp 2, sequence parallel", golden_uniform(model, 2, 1, 1, 1)});
    all.back().plan.sequence_parallel = true;
  }
  all.push_back({"pp 2", golden_uniform(model, 1, 2, 1, 2)});
  all.push_back({"pp 2, dp 2, tp 1, in buckets", golden_uniform(model, 1, 2, 2, 1)});
  all.back().plan.gradient_bucket = Bytes{4096};
  all.push_back({"split backward", golden_uniform(model, 1, 2, 1, 2)});
  all.back().plan.order = OrderKind::zb_h1;
  if (encodes) {
    all.push_back({"encoder apart", golden_apart(model, {1, 1, 2, {}}, {1, 1, 1, {}}, 1)});
    if (encoder_tp == 2) {
      all.push_back({"encoder apart, all", golden_apart(model, {2, 2, 1, {}}, {llm_tp, 2, 1, {}}, 2)});
      all.back().plan.sequence_parallel = true;
      all.back().plan.recomputation = Recomputation::full;
    }
  }
  if (model.deep_features() > 0) {
    for (GoldenWay& way : deep_ways(model)) all.push_back(std::move(way));
  }
  return all;
}

GoldenRun::GoldenRun(const GoldenModel& of, const Plan& p, DType dtype, const WeightSource* weights,
                     int row_alignment)
    : model(of.spec), plan(p) {
  plan.gbs = static_cast<int>(of.samples.size());
  iteration.plan = plan;
  iteration.samples = of.samples;
  iteration.assignment = dealt(plan, of.samples.size());
  iteration.program = lower(plan, model, of.samples, iteration.assignment, plan_order(plan));
  WorldOptions options;
  options.row_alignment = row_alignment;
  world = std::make_unique<HostWorld>(iteration.program.ranks(), options);
  std::optional<FolderWeights> own;
  if (weights == nullptr) weights = &own.emplace(model, of.folder);
  executor = std::make_unique<LiveExecutor>(plan, model, *world, LiveOptions{dtype, 7, of.contents, weights});
}

LiveResult GoldenRun::adamw_step(const GoldenModel& of, std::size_t step) const {
  StepOptions options;
  options.optimizer.beta2 = 0.95;
  options.optimizer.weight_decay = 0.1;
  options.optimizer.step = static_cast<std::int64_t>(step) + 1;
  options.update = step < of.rates.size();
  if (options.update) options.optimizer.learning_rate = of.rates[step];
  return executor->step(iteration, options);
}

std::vector<GradientDistance> gradient_distances(const GoldenModel& model, LiveExecutor& executor) {
  const WholeTensors found = executor.read(ParameterStore::Kind::gradient);
  const double least = 1e-6 * model.gradient_norm;
  std::vector<GradientDistance> distances;
  for (const auto& [name, tensor] : from_stored(model, model.gradients, found)) {
    const auto& values = found.at(name).values;
    double largest = 0;
    double difference = 0;
    double squares = 0;
    double difference_squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double by = std::abs(values[i] - tensor.values.at(i));
      largest = std::max(largest, std::abs(tensor.values[i]));
      difference = std::max(difference, by);
      squares += tensor.values[i] * tensor.values[i];
      difference_squares += by * by;
    }
    distances.push_back({name, difference / std::max(largest, least),
                         std::sqrt(difference_squares) / std::max(std::sqrt(squares), least)});
  }
  return distances;
}

}  // namespace dflop::testing
