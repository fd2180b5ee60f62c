// An Iteration is one training iteration of a plan, with all that an Executor needs to run it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/cost_model.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/program/lowering.hpp"
#include "core/timeline.hpp"

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

/// Makes an iteration without verify(), for planners: they run thousands of plans, all in orders that dflop
/// makes, and whoever runs the plan that they choose verifies it. The same arguments give the same iteration.
/// @throws Error (input) as lower()
Iteration make_trial_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                               Assignment assignment);

/// Prices an iteration's program with a model that may be another than that of its own costs. Beside the sums
/// of work, each compute instruction has the sample_excess() of the samples that it holds; an encoder apart
/// spreads that of a microbatch evenly over its dp ranks. No duration falls below zero.
ProgramCosts price(const CostModel& cost, const Iteration& iteration);

/// A Detail says how much of a run is kept.
enum class Detail : std::uint8_t {
  usage,  ///< makespan and per-group usage
  spans,  ///< also every span and memory point
};

/// An Executor runs iterations and says what ran when. tests/backend/contract/executor_test.cpp has what all
/// of them promise.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Runs one iteration. It may be called from several threads at once; a live executor takes one after the
  /// other.
  /// @throws Error (internal) if the program deadlocks, which a verified program does not, or, of a live
  /// executor, if it is of another plan than the executor's; what a device throws.
  virtual Timeline run(const Iteration& iteration, Detail detail) const = 0;
};

/// Fills the tables of a plan's order from any lowered program of the plan and batch, and its costs.
///
/// Times are means over dp ranks (and over the messages of a boundary and microbatch, without those by which
/// a hub gathers). Limits, where the order reads them, are held_limits(). Under encoder_in_bubbles they are
/// the encoder's: the LLM's microbatches come first, at most pp - rank of them, and the encoder's get what is
/// left beside the model state and the largest workspace, both counted in their largest activations; at least
/// one.
OrderTables order_tables(const Plan& plan, const Program& program, const ProgramCosts& costs,
                         Bytes usable_memory);

/// Returns the order in which planners, simulations and live runs run a plan on this batch: plan_order() with
/// the tables of a cost model and of a GPU's usable memory where the order reads them. What single samples
/// add to their microbatch (CostModel::sample_excess()) does not move it. The same arguments give the same
/// order. The plan must be valid. @throws Error (input) as lower().
PipelineOrder order_for_batch(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                              std::span<const Sample> batch, const Assignment& assignment,
                              Bytes usable_memory);

}  // namespace dflop
