// This example defines its own cost model, the analytic one with attention at twice the speed, and compares
// the two models on one iteration of the same plan. To run it, in the project's folder:
//
//   build/release/examples/own_cost_model
#include <fmt/format.h>

#include "core/iteration/iteration.hpp"
#include "costmodel/correction/corrected.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/target.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

/// A FastAttentionModel equals another cost model, except that it counts only half the work of attention.
/// Functions that it does not override come from the other model.
class FastAttentionModel final : public CostModelOver {
 public:
  using CostModelOver::CostModelOver;

  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    return base_.compute(op, stage, with_half_attention(work));
  }
  /// Bounds use the floor, which must not exceed compute().
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override {
    return base_.convex_floor(op, stage, with_half_attention(work));
  }

 private:
  /// Prices with the functions above. The base class would let the other model price everything at once.
  ProgramCosts price_sums(const Program& program) const override {
    return CostModel::price_sums(program);  // NOLINT(bugprone-parent-virtual-call)
  }

  static Work with_half_attention(Work work) {
    work.encoder.attention_pairs /= 2;
    work.llm.attention_pairs /= 2;
    return work;
  }
};

}  // namespace
}  // namespace dflop

int main() {
  using namespace dflop;
  constexpr int kGbs = 32;
  const Target target("llava-ov-llama3-8b", "a100-80g");
  PreprocessOptions options;
  options.rule = target.model.preprocess;
  options.max_tokens = target.model.max_tokens;
  const std::vector<Sample> samples = load_samples("traces/datasets/vision_mix.csv", options);
  const Batch batch = make_batches(samples, kGbs, 1, 1).front();
  const PlanResult planned = make_plan("dflop", {target, samples, {batch}, kGbs, 1});
  if (!planned.plan) {
    fmt::print("no plan fits: {}\n", planned.infeasible_reason);
    return 1;
  }
  const Assignment assignment = random_assignment(batch.size(), *planned.plan, 1, 0);

  // A Problem names the cost model, so planners and schedulers can use the new one in the same way.
  const FastAttentionModel fast(target.cost);
  const auto seconds = [&](const CostModel& cost) {
    const Problem problem{target.model, target.cluster, cost};
    const Iteration iteration = make_iteration(problem, *planned.plan, batch, assignment);
    return Seconds(target.executor.run(iteration, Detail::usage).makespan).count();
  };
  const double usual_s = seconds(target.cost);
  const double fast_s = seconds(fast);
  fmt::print("analytic        {:.3f} s\n", usual_s);
  fmt::print("fast attention  {:.3f} s, {:.1f} % less\n", fast_s, 100 * (1 - fast_s / usual_s));
  return 0;
}
