// A CorrectedCostModel applies the corrections learned from runs to another cost model.
#pragma once

#include "core/cost_model.hpp"
#include "core/plan.hpp"
#include "costmodel/correction/correction.hpp"

namespace dflop {

/// A CostModelOver forwards every call to another cost model; subclasses override some of them.
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

/// A CorrectedCostModel multiplies the base's compute time by the level learned for the stage's kind and op;
/// sample_excess() adds the penalty of the sample's buckets to the base's sample_excess(). Corrections
/// learned from backward passes in two parts also apply to whole ones, and vice versa. Without observations
/// all costs equal the base's. Communication, optimizer and memory costs are the base's.
class CorrectedCostModel final : public CostModelOver {
 public:
  /// Base and correction must outlive the model, which also uses whatever the correction learns later.
  CorrectedCostModel(const CostModel& base, const Correction& correction)
      : CostModelOver(base), correction_(correction) {}

  Seconds compute(Op op, const Stage& stage, const Work& work) const override;
  std::optional<Seconds> convex_floor(Op op, const Stage& stage, const Work& work) const override;
  Seconds sample_excess(Op op, const Stage& stage, const Sample& sample) const override;

 private:
  ProgramCosts price_sums(const Program& program) const override;
  /// Returns whether the observed runs split this backward pass in two parts.
  bool in_parts(Op op, const Stage& stage) const;
  /// Returns the op whose correction applies to `op`: the whole backward if the observed runs did not split
  /// it.
  Op learned_op(Op op, const Stage& stage) const;
  double level(Op op, const Stage& stage) const {
    return is_compute(op) ? correction_.level(kind_of(stage), learned_op(op, stage)) : 1.0;
  }

  const Correction& correction_;
};

}  // namespace dflop
