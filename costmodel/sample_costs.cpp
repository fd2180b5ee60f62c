#include "costmodel/sample_costs.hpp"

#include <algorithm>

#include "core/lowering.hpp"

namespace dflop {
namespace {

constexpr double kSmallestCost = 1e-9;

Work encoder_work(const Workload& load) {
  return {load, {}};
}

Work llm_work(const Workload& load) {
  return {{}, load};
}

/// The mean load of a bin, rounded up so that it is empty only if all are.
Workload mean_load(const Workload& total, std::int64_t bins) {
  return {round_up(total.sequences, bins) / bins, round_up(total.tokens, bins) / bins,
          round_up(total.attention_pairs, bins) / bins};
}

double both_passes(const CostModel& cost, const Stage& stage, const Work& work) {
  return (cost.compute(Op::forward, stage, work) + cost.compute(Op::backward, stage, work)).count();
}

/// Adds one module's samples to its mean load, on the stage where that load takes longest.
class MarginalCost {
 public:
  using ToWork = Work (*)(const Workload&);

  MarginalCost(const CostModel& cost, std::span<const Stage> stages, const Workload& mean, ToWork to_work)
      : cost_(cost), mean_(mean), to_work_(to_work), stage_(stages.front()) {
    for (const Stage& stage : stages) {
      const double time = both_passes(cost, stage, to_work(mean));
      if (time > base_) {
        base_ = time;
        stage_ = stage;
      }
    }
  }

  double of(const Workload& load) const {
    if (load.empty()) return 0;
    return std::max(both_passes(cost_, stage_, to_work_(mean_ + load)) - base_, kSmallestCost);
  }

 private:
  const CostModel& cost_;
  Workload mean_;
  ToWork to_work_;
  Stage stage_;
  double base_ = 0;
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
  const MarginalCost encoder(cost, stages, mean_load(total.encoder, encoder_bins), encoder_work);
  const MarginalCost llm(cost, stages, mean_load(total.llm, plan.bins()), llm_work);
  const double sharing = static_cast<double>(plan.llm.dp) / plan.encoder.dp;

  SampleCosts costs;
  costs.encoder_s.reserve(samples.size());
  costs.llm_s.reserve(samples.size());
  for (const Sample& sample : samples) {
    costs.encoder_s.push_back(sharing * encoder.of(sample.encoder()));
    costs.llm_s.push_back(llm.of(sample.llm()));
  }
  return costs;
}

}  // namespace dflop
