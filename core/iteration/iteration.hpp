// An Iteration is one training iteration of a plan, with everything that an Executor needs to run it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/cost_model.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/program/lowering.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// A Problem is the input of planning: a model to train, a cluster, and a cost model for them. All three must
/// outlive it.
struct Problem {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const CostModel& cost;
};

/// An Iteration is the central value of dflop: one batch under one plan, ordered, lowered and priced. The
/// simulator and the live backend run the same Iterations. A program without a plan, such as a raw pipeline
/// or a recording, becomes an Iteration with only its program and costs.
struct Iteration : PricedProgram {
  Plan plan = {};
  std::span<const Sample> samples = {};  ///< the batch; must outlive the iteration
  Assignment assignment = {};            ///< the microbatch and dp rank of each sample
  PipelineOrder order = {};              ///< of the steps on each pipeline rank
  /// This number distinguishes the iterations of one run, from 0 on. An executor's random draws depend on it.
  std::uint64_t number = 0;
};

/// Makes the iteration of a batch: orders the steps (by order_for_batch(), or by `order`, which must be for
/// the plan's shape), lowers them, verifies the program and prices it with the problem's cost model. The plan
/// must be valid. Apart from make_trial_iteration(), no other code makes programs of batches.
/// @throws what lower() and verify() throw
Iteration make_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                         Assignment assignment, std::optional<PipelineOrder> order = {});

/// Makes the same iteration as make_iteration() but does not call verify(). Planners use it, because they run
/// thousands of plans in dflop's own orders, and the chosen plan is verified when it runs.
/// @throws what lower() throws
Iteration make_trial_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                               Assignment assignment);

/// Prices an iteration's program with any cost model, not only the one behind its own costs. Each compute
/// instruction costs its sums of work plus the sample_excess() of its samples. An encoder with separate ranks
/// spreads a microbatch's excess evenly over its dp ranks. Durations are never below zero.
ProgramCosts price(const CostModel& cost, const Iteration& iteration);

/// A Detail says how much of a run is recorded.
enum class Detail : std::uint8_t {
  usage,  ///< makespan and per-group usage
  spans,  ///< also every span and memory point
};

/// An Executor runs iterations and returns their timelines. tests/backend/contract/executor_test.cpp has the
/// guarantees of all executors.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Runs one iteration. Several threads may call it at once; a live executor runs one iteration at a time.
  /// @throws Error (internal) if the program deadlocks, which a verified program does not. A live executor
  /// also throws errors of its device, and Error (internal) if its plan and the program's plan differ.
  virtual Timeline run(const Iteration& iteration, Detail detail) const = 0;
};

/// Returns the tables of a plan's order, filled from the costs of any lowered program of the plan and batch.
///
/// Times are means over dp ranks (and over the messages of a boundary and microbatch, except those with which
/// a hub gathers). Limits, if the order reads them, are held_limits(). Under encoder_in_bubbles they limit
/// the encoder's microbatches: as many as fit into the memory that the model state, the largest workspace and
/// the LLM's microbatches leave free, but at least one. The LLM has at most pp - rank microbatches on a rank.
/// Each microbatch counts with the largest activations of its module.
OrderTables order_tables(const Plan& plan, const Program& program, const ProgramCosts& costs,
                         Bytes usable_memory);

/// Returns the order in which planners, simulations and live runs run a plan on this batch: plan_order() with
/// the tables of a cost model and of a GPU's usable memory, if the order reads them.
/// CostModel::sample_excess() does not affect the order. The same arguments give the same order. The plan
/// must be valid. @throws what lower() throws
PipelineOrder order_for_batch(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                              std::span<const Sample> batch, const Assignment& assignment,
                              Bytes usable_memory);

}  // namespace dflop
