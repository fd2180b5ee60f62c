// A CorrectedCostModel is a cost model with what runs have taught about it.
#pragma once

#include "core/cost_model.hpp"
#include "core/plan.hpp"
#include "costmodel/correction/correction.hpp"

namespace dflop {

/// A CostModelOver is another cost model but for what it overrides.
class CostModelOver : public CostModel {
 public:
  /// `base` must outlive it.
  explicit CostModelOver(const CostModel& base) : base_(base) {}

  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    return base_.compute(op, stage, work);
  }
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override {
    return base_.convex_floor(op, stage, work);
  }
  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override {
    return base_.sample_excess(op, stage, sample);
  }
  Seconds message(const Message& message, const Program& program) const override {
    return base_.message(message, program);
  }
  Seconds all_reduce(const Collective& collective, const Program& program) const override {
    return base_.all_reduce(collective, program);
  }
  Seconds optimizer_step(const Stage& stage) const override { return base_.optimizer_step(stage); }
  bool knows_shares() const override { return base_.knows_shares(); }
  int share_quanta() const override { return base_.share_quanta(); }
  double bandwidth(Op op, const Stage& stage, const Work& work) const override {
    return base_.bandwidth(op, stage, work);
  }
  double optimizer_bandwidth(const Stage& stage) const override { return base_.optimizer_bandwidth(stage); }
  ModelState model_state(const Stage& stage) const override { return base_.model_state(stage); }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return base_.activation(stage, work);
  }
  Bytes split_activation(const Stage& stage, const Work& work) const override {
    return base_.split_activation(stage, work);
  }
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override {
    return base_.workspace(op, stage, work);
  }

 protected:
  ProgramCosts price_sums(const Program& program) const override {
    return CostModel::price_sums(base_, program);
  }

  const CostModel& base_;
};

/// A CorrectedCostModel computes as the base does, times the level of that kind of stage and op;
/// sample_excess() adds the penalty of the sample's buckets to the base's. Backwards learned in two parts
/// correct those in one, and the other way round. Without observations all are exactly the base's.
/// Communication, optimizer and memory are the base's.
class CorrectedCostModel final : public CostModelOver {
 public:
  /// Base and correction must outlive the model, and it sees what the correction learns later.
  CorrectedCostModel(const CostModel& base, const Correction& correction)
      : CostModelOver(base), correction_(correction) {}

  Seconds compute(Op op, const Stage& stage, const Work& work) const override;
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override;
  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override;

 private:
  ProgramCosts price_sums(const Program& program) const override;
  /// Tells whether runs had the two parts of this backward.
  bool in_parts(Op op, const Stage& stage) const;
  /// Returns the op whose correction stands for `op`: that of the whole backward, where runs had no parts.
  Op learned_op(Op op, const Stage& stage) const;
  double level(Op op, const Stage& stage) const {
    return is_compute(op) ? correction_.level(kind_of(stage), learned_op(op, stage)) : 1.0;
  }

  const Correction& correction_;
};

}  // namespace dflop
