#include "solver/planners/dflop/published_objective.hpp"

#include <algorithm>
#include <cmath>

#include "core/program/lowering.hpp"

namespace dflop {

Workload share_of_batch(const Workload& sample, int gbs, std::int64_t shares) {
  const auto share = [&](std::int64_t count) {
    if (count == 0) return std::int64_t{0};
    constexpr double most = 4e18;  // attention pairs of hostile records times gbs would not fit 64 bits
    const double rounded = std::floor(static_cast<double>(count) * gbs / static_cast<double>(shares) + 0.5);
    return static_cast<std::int64_t>(std::clamp(rounded, 1.0, most));
  };
  return {share(sample.sequences), share(sample.tokens), share(sample.attention_pairs)};
}

Seconds slowest_stage(const CostModel& cost, std::span<const Stage> stages, const Work& work) {
  Seconds slowest{0};
  for (const Stage& stage : stages) {
    slowest =
        std::max(slowest, cost.compute(Op::forward, stage, work) + cost.compute(Op::backward, stage, work));
  }
  return slowest;
}

Seconds slowest_stage_floor(const CostModel& cost, std::span<const Stage> stages, const Work& work) {
  Seconds slowest{0};
  for (const Stage& stage : stages) {
    slowest = std::max(slowest, cost.convex_floor(Op::forward, stage, work).value() +
                                    cost.convex_floor(Op::backward, stage, work).value());
  }
  return slowest;
}

Seconds published_objective(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                            std::span<const Sample> items) {
  const std::vector<Stage> stages = plan_stages(plan, model);
  const auto encoder = std::span(stages).first(plan.encoder.pp);
  const auto llm = std::span(stages).subspan(plan.encoder.pp);
  const std::int64_t encoder_shares = std::int64_t{plan.microbatches} * plan.encoder.dp;
  const std::int64_t llm_shares = std::int64_t{plan.microbatches} * plan.llm.dp;
  Seconds sum{0};
  for (const Sample& item : items) {
    const Work encoder_work{share_of_batch(item.encoder(), plan.gbs, encoder_shares), {}};
    const Work llm_work{{}, share_of_batch(item.llm(), plan.gbs, llm_shares)};
    sum += std::max(slowest_stage(cost, encoder, encoder_work), slowest_stage(cost, llm, llm_work));
  }
  const int steps = plan.microbatches + plan.encoder.pp + plan.llm.pp - 1;
  return sum * (static_cast<double>(steps) / static_cast<double>(items.size()));
}

}  // namespace dflop
