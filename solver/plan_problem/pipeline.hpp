// A PlanPipeline is a Plan's pipeline with durations that are affine in its loads. The makespan search
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

/// A PlanPipeline is a plan's pipeline for one batch. Its features are, as far as durations depend on them,
/// the counts of the samples' encoder and LLM work, their encoder output tokens, and the time they add beyond
/// their work (CostModel::sample_excess(), in seconds, which may be negative).
struct PlanPipeline {
  /// This pipeline's durations approximate the cost model with tangent planes at the mean work of a
  /// microbatch. An encoder with separate ranks is one chain, of which each rank has an equal share.
  LoadPipeline pipeline;
  /// This pipeline's durations are never above the cost model's on idle links, and it has no waits that some
  /// assignment avoids. Its makespan is at most that of lower()'s program for any assignment, in the same
  /// order. It has the same steps as `pipeline`.
  LoadPipeline floor;
  /// This is the kind of bound that `floor` gives: linear_program if every assignment runs in one order,
  /// otherwise simple; none if the cost model has no convex floor, or has a sample that takes less than its
  /// work implies.
  BoundKind bound = BoundKind::none;
  std::vector<std::vector<double>> values;  ///< [feature][sample]

  Features features() const { return {values.begin(), values.end()}; }
};

/// Makes the pipeline of a plan and batch. `memory` has the usable bytes of a GPU, which limit eager-1f1b and
/// encoder-in-bubbles; none: no limit. Orders that read tables get those of a balanced assignment. The
/// tangent planes of `pipeline` are those of compute(); those of `floor` come from convex_floor(), if there
/// is one. Messages cost their latency, and their bytes at the receiving end. Gradients cost the part that
/// cannot overlap with the last backward: the last bucket, and all buckets from the time when the first is
/// complete. A sample's excess lengthens only the durations of `pipeline`. It needs one feature for each
/// stage and op whose excesses are not multiples of another's, and none if all are zero.
///
/// `floor` also differs in two other ways, if there are samples without encoder output or an encoder with
/// separate ranks has several dp ranks. (1) A bin without encoder output gets no message from the encoder,
/// and neither waits for the other; of several encoder dp ranks some may have no part of a microbatch, and
/// each serves only some bins (core/program/lowering.cpp). So encoder stages wait for nothing and nothing
/// waits for them. (2) An encoder stage without work takes no time, so its duration has no fixed part. What
/// remains is the mean over dp ranks, which convex durations permit: the mean of their durations is at least
/// the duration of their mean.
///
/// The plan must be valid, and the batch must have a sample for each of its bins.
PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, Bytes memory = kAnyMemory);

/// Returns the same for steps in a given order, which must be for the plan's shape.
PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, const PipelineOrder& order);

}  // namespace dflop
