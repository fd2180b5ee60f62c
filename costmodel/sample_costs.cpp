#include "costmodel/sample_costs.hpp"

#include <algorithm>

#include "core/lowering.hpp"

namespace dflop {
namespace {

constexpr double kSmallestCost = 1e-9;

/// The mean load of a bin, rounded up so that it is empty only if all are.
Workload mean_load(const Workload& total, std::int64_t bins) {
  return {round_up(total.sequences, bins) / bins, round_up(total.tokens, bins) / bins,
          round_up(total.attention_pairs, bins) / bins};
}

double both_passes(const CostModel& cost, const Stage& stage, const Work& work) {
  return (cost.compute(Op::forward, stage, work) + cost.compute(Op::backward, stage, work)).count();
}

/// What samples add to the mean load, on the stage where that load takes longest.
class MarginalCost {
 public:
  /// Looks at those of `stages` for which `holds` is true; there is at least one.
  template <typename Holds>
  MarginalCost(const CostModel& cost, std::span<const Stage> stages, const Work& mean, Holds holds)
      : cost_(cost), mean_(mean) {
    for (const Stage& stage : stages) {
      const double time = holds(stage) ? both_passes(cost, stage, mean) : -1;
      if (time <= base_) continue;
      base_ = time;
      stage_ = stage;
    }
  }

  double of(const Sample& sample) const {
    const Work work{stage_.encoder_layers > 0 ? sample.encoder() : Workload{},
                    stage_.llm_layers > 0 ? sample.llm() : Workload{}};
    if (work.encoder.empty() && work.llm.empty()) return 0;
    const Work with_sample{mean_.encoder + work.encoder, mean_.llm + work.llm};
    return std::max(both_passes(cost_, stage_, with_sample) - base_, kSmallestCost);
  }

 private:
  const CostModel& cost_;
  Work mean_;
  Stage stage_;
  double base_ = -1;
};

}  // namespace

SampleCosts sample_costs(const CostModel& cost, const Plan& plan, const ModelSpec& model,
                         std::span<const Sample> samples) {
  Work total;
  for (const Sample& sample : samples) {
    total.encoder += sample.encoder();
    total.llm += sample.llm();
  }
  const std::vector<Stage> stages = plan_stages(plan, model);
  const std::int64_t encoder_bins = std::int64_t{plan.microbatches} * plan.encoder.dp;
  const Work mean{mean_load(total.encoder, encoder_bins), mean_load(total.llm, plan.bins())};
  const auto holds_encoder = [](const Stage& stage) { return stage.encoder_layers > 0; };
  const auto only_llm = [&](const Stage& stage) { return !holds_encoder(stage); };
  const bool apart = std::any_of(stages.begin(), stages.end(), only_llm);
  const MarginalCost encoder(cost, stages, mean, holds_encoder);
  const MarginalCost llm = apart ? MarginalCost(cost, stages, mean, only_llm) : encoder;
  const double sharing = static_cast<double>(plan.llm.dp) / plan.encoder.dp;

  SampleCosts costs;
  costs.encoder_s.reserve(samples.size());
  costs.llm_s.reserve(samples.size());
  for (const Sample& sample : samples) {
    costs.encoder_s.push_back(sharing * encoder.of(sample));
    costs.llm_s.push_back(llm.of(sample));
  }
  return costs;
}

}  // namespace dflop
