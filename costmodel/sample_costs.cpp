#include "costmodel/sample_costs.hpp"

#include <algorithm>

#include "core/program/lowering.hpp"

namespace dflop {
namespace {

constexpr double kSmallestCost = 1e-9;

/// RankStages holds the stages that one pipeline rank runs for a microbatch, and the fraction of the
/// microbatches that each sees.
struct RankStages {
  std::vector<Stage> stages;
  std::vector<double> parts;

  bool holds_encoder() const {
    return std::any_of(stages.begin(), stages.end(), [](const Stage& s) { return s.encoder_layers > 0; });
  }
  bool holds_llm() const {
    return std::any_of(stages.begin(), stages.end(), [](const Stage& s) { return s.llm_layers > 0; });
  }
  /// Returns the sum of `cost(stage)` over all stages, for a whole microbatch.
  template <typename Cost>
  double sum(const Cost& cost) const {
    double seconds = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) seconds += parts[s] * cost(stages[s]).count();
    return seconds;
  }
};

/// In a colocated plan, each rank encodes one microbatch in pp, and each of its copies of the encoder a part.
std::vector<RankStages> rank_stages(const Plan& plan, const ModelSpec& model) {
  const std::vector<Stage> stages = plan_stages(plan, model);
  std::vector<RankStages> ranks;
  for (const std::vector<int>& of_rank : stages_of_ranks(plan_shape(plan))) {
    RankStages& rank = ranks.emplace_back();
    for (const int s : of_rank) {
      rank.stages.push_back(stages[s]);
      const bool is_spread = plan.layout == Layout::colocated && s == 0;
      rank.parts.push_back(is_spread ? 1.0 / (plan.llm.pp * stages[s].copies) : 1.0);
    }
  }
  return ranks;
}

/// A MarginalCost is the cost that samples add to the mean load, on the rank where that load takes longest.
class MarginalCost {
 public:
  /// Considers only the `ranks` for which `holds` is true. If there are none, such as for a text model's
  /// encoder, samples cost nothing.
  template <typename Holds>
  MarginalCost(const CostModel& cost, const std::vector<RankStages>& ranks, const Work& mean, Holds holds)
      : cost_(cost), mean_(mean) {
    for (const RankStages& rank : ranks) {
      const double time = holds(rank) ? duration(rank, mean) : -1;
      if (time <= base_) continue;
      base_ = time;
      rank_ = &rank;
    }
  }

  double of(const Sample& sample) const {
    if (rank_ == nullptr) return 0;
    const Work work{rank_->holds_encoder() ? sample.encoder() : Workload{},
                    rank_->holds_llm() ? sample.llm() : Workload{}};
    if (work.encoder.empty() && work.llm.empty()) return 0;
    const Work with_sample{mean_.encoder + work.encoder, mean_.llm + work.llm};
    const double added = duration(*rank_, with_sample) - base_;
    const double excess = rank_->sum([&](const Stage& stage) {
      return cost_.sample_excess(Op::forward, stage, sample) +
             cost_.sample_excess(Op::backward, stage, sample);
    });
    return std::max(added + excess, kSmallestCost);
  }

 private:
  double duration(const RankStages& rank, const Work& work) const {
    return rank.sum([&](const Stage& stage) { return cost_.both_passes(stage, work); });
  }

  const CostModel& cost_;
  Work mean_;
  const RankStages* rank_ = nullptr;
  double base_ = -1;
};

}  // namespace

Work total_work(std::span<const Sample> samples) {
  Work total;
  for (const Sample& sample : samples) {
    total.encoder += sample.encoder();
    total.llm += sample.llm();
  }
  return total;
}

Workload mean_part(const Workload& total, std::int64_t count) {
  const auto part = [count](std::int64_t all) { return round_up(all, count) / count; };
  return {part(total.sequences),
          part(total.tokens),
          part(total.attention_pairs),
          total.untrained_tokens / count,
          {part(total.second.sequences), part(total.second.tokens), part(total.second.attention_pairs)}};
}

SampleCosts sample_costs(const CostModel& cost, const Plan& plan, const ModelSpec& model,
                         std::span<const Sample> samples) {
  const Work total = total_work(samples);
  const std::vector<RankStages> ranks = rank_stages(plan, model);
  // Only an encoder on separate ranks is shared by dp ranks other than the LLM's.
  const int encoder_dp = has_encoder_ranks(plan.layout) ? plan.encoder.dp : plan.llm.dp;
  const std::int64_t encoder_bins = std::int64_t{plan.microbatches} * encoder_dp;
  const Work mean{mean_part(total.encoder, encoder_bins), mean_part(total.llm, plan.bins())};
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
