// An Iteration is one training iteration of a plan, with all that an executor needs to run it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/cost_model.hpp"
#include "core/order/pipeline_order.hpp"

namespace dflop {

/// A Problem is what a plan is for: a model to train on a cluster, and what its parts cost there. The three
/// outlive it.
struct Problem {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const CostModel& cost;
};

/// An Iteration is the central value: one batch under one plan, ordered, lowered and priced. Simulator and
/// live backend run the same one. A program that is of no plan, as a raw pipeline or a recording, makes an
/// Iteration of its program and costs alone.
struct Iteration : PricedProgram {
  Plan plan = {};
  std::span<const Sample> samples = {};  ///< the batch, which outlives the iteration
  Assignment assignment = {};            ///< the microbatch and dp rank of each sample
  PipelineOrder order = {};              ///< of the steps on each pipeline rank
  /// This number tells the iterations of one run apart, from 0 on: random draws of an executor go by it.
  std::uint64_t number = 0;
};

/// Makes the iteration of a batch: it orders the steps (order_for_batch(), or as `order` says, which is for
/// the plan's shape), lowers them, verifies the program and prices it with the problem's cost model. The plan
/// is valid. This is the one place in which programs of batches are made.
/// @throws Error (input) as lower() and verify().
Iteration make_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                         Assignment assignment, std::optional<PipelineOrder> order = {});

/// Prices an iteration's program with a model that may be another than that of its own costs. Beside the sums
/// of work, each compute instruction has the sample_excess() of the samples that it holds; an encoder apart
/// spreads that of a microbatch evenly over its dp ranks. No duration falls below zero.
ProgramCosts price(const CostModel& cost, const Iteration& iteration);

}  // namespace dflop
