#include "costmodel/correction/corrected.hpp"

#include <algorithm>

namespace dflop {
bool CorrectedCostModel::in_parts(Op op, const Stage& stage) const {
  const StageKind kind = kind_of(stage);
  return op == Op::backward && !correction_.knows(kind, op) && correction_.knows(kind, Op::backward_input) &&
         correction_.knows(kind, Op::backward_weight);
}

Op CorrectedCostModel::learned_op(Op op, const Stage& stage) const {
  const bool part = op == Op::backward_input || op == Op::backward_weight;
  return part && !correction_.knows(kind_of(stage), op) ? Op::backward : op;
}

Seconds CorrectedCostModel::compute(Op op, const Stage& stage, const Work& work) const {
  if (in_parts(op, stage)) {
    return compute(Op::backward_input, stage, work) + compute(Op::backward_weight, stage, work);
  }
  return level(op, stage) * base_.compute(op, stage, work);
}

std::optional<Seconds> CorrectedCostModel::convex_floor(Op op, const Stage& stage, const Work& work) const {
  const std::optional<Seconds> floor = base_.convex_floor(op, stage, work);
  if (!floor) return floor;
  if (!in_parts(op, stage)) return level(op, stage) * *floor;
  return std::min(level(Op::backward_input, stage), level(Op::backward_weight, stage)) * *floor;
}

Seconds CorrectedCostModel::sample_excess(Op op, const Stage& stage, const Sample& sample) const {
  if (in_parts(op, stage)) {
    return sample_excess(Op::backward_input, stage, sample) +
           sample_excess(Op::backward_weight, stage, sample);
  }
  const Seconds own = base_.sample_excess(op, stage, sample);
  const StageKind kind = kind_of(stage);
  const Op learned = learned_op(op, stage);
  double penalty = 0;
  for (const ShapeBucket& bucket : buckets_of(kind, sample)) {
    penalty += correction_.penalty(kind, learned, bucket);
  }
  if (penalty == 0) return own;
  return own + penalty * base_.compute(op, stage, correction_.reference(kind, learned));
}

ProgramCosts CorrectedCostModel::price_sums(const Program& program) const {
  ProgramCosts costs = CostModel::price_sums(base_, program);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const Stage& stage = program.stages[instruction.stage];
    if (!is_compute(instruction.op)) continue;
    if (in_parts(instruction.op, stage)) {
      costs.set_duration(i, to_nanoseconds(compute(instruction.op, stage, program.works[instruction.index])));
      continue;
    }
    const double factor = level(instruction.op, stage);
    if (factor != 1) costs.set_duration(i, to_nanoseconds(factor * Seconds(costs.instruction[i])));
  }
  return costs;
}

}  // namespace dflop
