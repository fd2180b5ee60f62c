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
/// the samples' counts of encoder and LLM work, their encoder output tokens, and their excess: the time, in
/// seconds, that a sample takes beyond its work (CostModel::sample_excess(), may be negative).
struct PlanPipeline {
  /// This pipeline's durations approximate the cost model with tangent planes at the mean work of a
  /// microbatch. An encoder with separate ranks is one chain of steps, in which each of its dp ranks does an
  /// equal share.
  LoadPipeline pipeline;
  /// This pipeline's durations are never above the cost model's on idle links, and it has no waits that some
  /// assignment avoids. So, for any assignment in the same order, its makespan is at most the makespan of the
  /// program that lower() makes. It has the same steps as `pipeline`.
  LoadPipeline floor;
  /// This is the kind of bound that `floor` gives: linear_program if every assignment runs in one order,
  /// otherwise simple; none if the cost model has no convex floor, or if a sample takes less time than its
  /// work implies.
  BoundKind bound = BoundKind::none;
  std::vector<std::vector<double>> values;  ///< [feature][sample]

  Features features() const { return {values.begin(), values.end()}; }
};

/// Makes the pipeline of a plan and batch. `memory` has the usable bytes of a GPU, which limit the orders
/// eager-1f1b and encoder-in-bubbles. Orders that depend on durations are made for a balanced assignment.
///
/// The durations of `pipeline` are tangent planes of CostModel::compute(); the durations of `floor` come from
/// convex_floor(), if the cost model has it. A message costs its latency, plus the time of the bytes that its
/// receiver needs. Gradients cost the part that cannot overlap with the last backward: the last bucket, and
/// all buckets from the time when the first is complete. A sample's excess lengthens only the durations of
/// `pipeline`. There is one feature of excesses for each stage and op, but none if its excesses are zero or
/// multiples of an earlier feature.
///
/// `floor` also differs in two other ways, if there are samples without encoder output or an encoder with
/// separate ranks has several dp ranks. (1) A bin without encoder output gets no message from the encoder,
/// and neither waits for the other. Of several encoder dp ranks, some may have no part of a microbatch, and
/// each serves only some bins (core/program/lowering.cpp). So in `floor`, encoder stages wait for nothing,
/// and nothing waits for them. (2) An encoder stage without work takes no time, so its duration has no fixed
/// part.
///
/// The durations of `floor` are for the mean work over dp ranks. Convex durations permit this: the mean of
/// the ranks' durations is at least the duration of their mean work.
///
/// The plan must be valid, and the batch must have a sample for each of its bins.
PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, Bytes memory = kAnyMemory);

/// Makes the pipeline of a plan and batch whose steps run in a given order, which must be for the plan's
/// shape.
PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, const PipelineOrder& order);

}  // namespace dflop
