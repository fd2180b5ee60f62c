#include "costmodel/sample_costs.hpp"

#include <algorithm>

#include "core/program/lowering.hpp"

namespace dflop {
namespace {

constexpr double kSmallestCost = 1e-9;

/// Returns the mean load of a bin, rounded up so that it is empty only if all are.
Workload mean_load(const Workload& total, std::int64_t bins) {
  return {round_up(total.sequences, bins) / bins, round_up(total.tokens, bins) / bins,
          round_up(total.attention_pairs, bins) / bins};
}

/// RankStages are what one pipeline rank runs of a microbatch: its stages, and which part of the microbatches
/// each sees.
struct RankStages {
  std::vector<Stage> stages;
  std::vector<double> parts;

  bool holds_encoder() const {
    return std::any_of(stages.begin(), stages.end(), [](const Stage& s) { return s.encoder_layers > 0; });
  }
  bool holds_llm() const {
    return std::any_of(stages.begin(), stages.end(), [](const Stage& s) { return s.llm_layers > 0; });
  }
  double both_passes(const CostModel& cost, const Work& work) const {
    double seconds = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const Seconds whole =
          cost.compute(Op::forward, stages[s], work) + cost.compute(Op::backward, stages[s], work);
      seconds += parts[s] * whole.count();
    }
    return seconds;
  }
  /// Returns what the sample adds beyond its work.
  double excess(const CostModel& cost, const Sample& sample) const {
    double seconds = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const Seconds whole = cost.sample_excess(Op::forward, stages[s], sample) +
                            cost.sample_excess(Op::backward, stages[s], sample);
      seconds += parts[s] * whole.count();
    }
    return seconds;
  }
};

/// The encoder of a colocated plan sees one microbatch in pp on each rank.
std::vector<RankStages> rank_stages(const Plan& plan, const ModelSpec& model) {
  const std::vector<Stage> stages = plan_stages(plan, model);
  std::vector<RankStages> ranks;
  for (const std::vector<int>& of_rank : stages_of_ranks(plan_shape(plan))) {
    RankStages& rank = ranks.emplace_back();
    for (const int s : of_rank) {
      rank.stages.push_back(stages[s]);
      rank.parts.push_back(plan.layout == Layout::colocated && s == 0 ? 1.0 / plan.llm.pp : 1.0);
    }
  }
  return ranks;
}

/// A MarginalCost is what samples add to the mean load, on the rank where that load takes longest.
class MarginalCost {
 public:
  /// Looks at those of `ranks` for which `holds` is true; there is at least one.
  template <typename Holds>
  MarginalCost(const CostModel& cost, const std::vector<RankStages>& ranks, const Work& mean, Holds holds)
      : cost_(cost), mean_(mean) {
    for (const RankStages& rank : ranks) {
      const double time = holds(rank) ? rank.both_passes(cost, mean) : -1;
      if (time <= base_) continue;
      base_ = time;
      rank_ = &rank;
    }
  }

  double of(const Sample& sample) const {
    const Work work{rank_->holds_encoder() ? sample.encoder() : Workload{},
                    rank_->holds_llm() ? sample.llm() : Workload{}};
    if (work.encoder.empty() && work.llm.empty()) return 0;
    const Work with_sample{mean_.encoder + work.encoder, mean_.llm + work.llm};
    const double added = rank_->both_passes(cost_, with_sample) - base_;
    return std::max(added + rank_->excess(cost_, sample), kSmallestCost);
  }

 private:
  const CostModel& cost_;
  Work mean_;
  const RankStages* rank_ = nullptr;
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
  const std::vector<RankStages> ranks = rank_stages(plan, model);
  // Only an encoder on ranks of its own is shared by other dp ranks than those of the LLM.
  const int encoder_dp = plan.layout == Layout::disaggregated ? plan.encoder.dp : plan.llm.dp;
  const std::int64_t encoder_bins = std::int64_t{plan.microbatches} * encoder_dp;
  const Work mean{mean_load(total.encoder, encoder_bins), mean_load(total.llm, plan.bins())};
  const auto holds_encoder = [](const RankStages& rank) { return rank.holds_encoder(); };
  const auto only_llm = [](const RankStages& rank) { return !rank.holds_encoder(); };
  const bool apart = std::any_of(ranks.begin(), ranks.end(), only_llm);
  const MarginalCost encoder(cost, ranks, mean, holds_encoder);
  const MarginalCost llm = apart ? MarginalCost(cost, ranks, mean, only_llm) : encoder;
  const double sharing = static_cast<double>(plan.llm.dp) / encoder_dp;

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
