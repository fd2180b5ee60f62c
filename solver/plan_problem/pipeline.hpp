// A PlanPipeline is a Plan's pipeline with durations that are affine in its loads: the makespan search
// evaluates it, and its floor bounds the makespan.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/cost_model.hpp"
#include "core/plan.hpp"
#include "core/scheduler.hpp"
#include "solver/load_pipeline.hpp"

namespace dflop {

/// A PlanPipeline is a plan's pipeline for one batch. Features are the counts of the samples' encoder and LLM
/// work, their encoder output tokens, and what they add beyond their work (CostModel::sample_excess(), in
/// seconds, which may be negative), as far as durations depend on them.
struct PlanPipeline {
  /// This pipeline has durations near those of the cost model: planes that touch it at the mean work of a
  /// microbatch. An encoder apart is one chain, each of its ranks having an equal share.
  LoadPipeline pipeline;
  /// This pipeline has durations that are never above those of the cost model with nothing else on the links,
  /// and none of the waits that an assignment may avoid: its makespan is at most that of the program that
  /// lower() makes of any assignment, in the same order. It has the steps of `pipeline`.
  LoadPipeline floor;
  /// This says what `floor` is good for: linear_program where every assignment runs in one order, else
  /// simple; none where the cost model has no convex floor, or knows of a sample that takes less than its
  /// work says.
  BoundKind bound = BoundKind::none;
  std::vector<std::vector<double>> values;  ///< [feature][sample]

  Features features() const { return {values.begin(), values.end()}; }
};

/// Makes the pipeline of a plan and batch. `memory` has the usable bytes of a GPU, which limit eager-1f1b and
/// encoder-in-bubbles; none: no limit. Orders that read tables take those of a balanced assignment. The
/// tangent planes of `pipeline` are those of compute(), of `floor` those of convex_floor() where there is
/// one. Messages cost their latency and their bytes at the end that receives them, gradients what cannot
/// overlap with the last backward: the last bucket, and all buckets from when the first is complete. A
/// sample's excess lengthens the durations of `pipeline` alone; there are as many features for it as stages
/// and ops whose excesses are no multiples of each other, and none where all are zero.
///
/// `floor` differs elsewhere, too: (1) a bin without encoder output gets no message from the encoder and
/// neither waits the other for it, and of several encoder dp ranks some may have no part of a microbatch, and
/// each serves but some bins (core/program/lowering.cpp): with samples without encoder output, or with
/// several dp ranks of an encoder apart, encoder stages wait for nothing and nothing waits for them. (2)
/// There, too, an encoder stage without work takes no time, so that its duration has no fixed part. What
/// remains is the mean over dp ranks, as convex durations allow: the mean of their durations is at least the
/// duration of their mean.
///
/// The plan must be valid, and the batch have a sample for each of its bins.
PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, Bytes memory = kAnyMemory);

/// Returns the same for steps in a given order, which is of the plan's shape.
PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, const PipelineOrder& order);

}  // namespace dflop
