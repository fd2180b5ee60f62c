#include "core/iteration/iteration.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/iteration/batch_order.hpp"
#include "core/program/encoder_share.hpp"
#include "core/program/lowering.hpp"
#include "core/program/verify.hpp"

namespace dflop {
namespace {

/// A SampleExcess is what the samples of an iteration add to the durations of its compute instructions,
/// beyond sums of work.
class SampleExcess {
 public:
  SampleExcess(const CostModel& cost, const Iteration& iteration)
      : cost_(cost),
        iteration_(iteration),
        bins_(samples_of_bins(iteration.plan, iteration.assignment)),
        of_ops_(kNames<Op>.size() * iteration.program.stages.size()) {}

  /// Returns the excess of one instruction of a group.
  Seconds of(const Group& group, const Instruction& instruction) {
    const OfOp& op = of_op(instruction.op, instruction.stage);
    if (op.samples.empty()) return Seconds(0);
    const Plan& plan = iteration_.plan;
    const std::size_t first_bin = static_cast<std::size_t>(instruction.microbatch) * plan.llm.dp;
    if (!op.shared) return sum(op, first_bin + group.dp_rank, 1);
    return sum(op, first_bin, plan.llm.dp) / plan.encoder.dp;
  }

 private:
  /// An OfOp has the excesses of one op on one stage.
  struct OfOp {
    bool known = false;
    bool shared = false;           ///< the dp ranks of an encoder apart share what all those of the LLM hold
    std::vector<Seconds> samples;  ///< of each sample; empty where all are zero
  };

  const OfOp& of_op(Op op, std::size_t stage) {
    OfOp& of_op = of_ops_[kNames<Op>.size() * stage + static_cast<std::size_t>(op)];
    if (of_op.known) return of_op;
    of_op.known = true;
    const Stage& shape = iteration_.program.stages[stage];
    of_op.shared = iteration_.plan.layout == Layout::disaggregated && shape.encoder_layers > 0;
    for (const Sample& sample : iteration_.samples) {
      of_op.samples.push_back(cost_.sample_excess(op, shape, sample));
    }
    const auto none = [](Seconds excess) { return excess.count() == 0; };
    if (std::all_of(of_op.samples.begin(), of_op.samples.end(), none)) of_op.samples.clear();
    return of_op;
  }

  Seconds sum(const OfOp& op, std::size_t first_bin, int bins) const {
    Seconds sum(0);
    for (int b = 0; b < bins; ++b) {
      for (const std::int32_t s : bins_[first_bin + b]) sum += op.samples[s];
    }
    return sum;
  }

  const CostModel& cost_;
  const Iteration& iteration_;
  SamplesOfBins bins_;
  std::vector<OfOp> of_ops_;  ///< by stage and op
};

}  // namespace

ProgramCosts price(const CostModel& cost, const Iteration& iteration) {
  const Program& program = iteration.program;
  ProgramCosts costs = cost.price_sums(program);
  if (iteration.samples.empty()) return costs;
  SampleExcess excess(cost, iteration);
  for (const Group& group : program.groups) {
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      if (!is_compute(program.instructions[i].op)) continue;
      const Seconds more = excess.of(group, program.instructions[i]);
      if (more.count() == 0) continue;
      costs.instruction[i] = to_nanoseconds(std::max(Seconds(costs.instruction[i]) + more, Seconds(0)));
    }
  }
  return costs;
}

Iteration make_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                         Assignment assignment, std::optional<PipelineOrder> order) {
  Iteration iteration;
  iteration.plan = plan;
  iteration.samples = samples;
  iteration.order = order ? *std::move(order)
                          : order_for_batch(plan, problem.model, problem.cost, samples, assignment,
                                            problem.cluster.gpu.usable_memory());
  iteration.program = lower(plan, problem.model, samples, assignment, iteration.order);
  iteration.assignment = std::move(assignment);
  verify(iteration.program);
  iteration.costs = price(problem.cost, iteration);
  return iteration;
}

}  // namespace dflop
