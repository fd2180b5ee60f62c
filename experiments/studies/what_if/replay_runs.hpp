// This file replays a recorded iteration, unchanged and under what-ifs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/iteration/iteration.hpp"
#include "core/program/reorder.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/what_if/what_if.hpp"
#include "sim/step_sequence.hpp"

namespace dflop {

/// Returns whether the shapes of the stages are known: there are stages, and each has layers, a connector, an
/// embedding or a head.
bool knows_shapes(std::span<const Stage> stages);

/// A ReplayReference has facts about the recorded model that a recording may lack. The profile or the model
/// says how whole backward passes would split into input and weight parts. The profile also has the memory
/// that instructions keep. Some pipeline orders are limited by `usable_memory`, of a GPU of the recorded
/// cluster. Missing facts stay unknown.
struct ReplayReference {
  std::string name;  ///< shown to the user
  std::shared_ptr<const SumCostModel> profile = {};
  std::optional<ModelSpec> model = {};
  std::optional<Bytes> usable_memory = {};
};

/// Returns, for each stage, the fraction of a whole backward pass that computes weight gradients. The
/// fraction comes from the profile's times or else from the model's FLOP, and includes recomputation. The
/// backward pass of a matrix product has as many FLOP for the weights as for the input. The backward pass of
/// attention has twice the FLOP of its forward pass (Dao 2023), all for the input. The result is empty if
/// there is neither profile nor model, or if the program lacks the shapes of its stages.
std::vector<double> weight_shares(const Program& program, const ReplayReference& reference);

/// A ReplayChange is one what-if of a replay. It changes the result of the previous changes.
struct ReplayChange {
  std::string name;  ///< in the table
  std::function<PricedProgram(const PricedProgram& before, const RecordedProgram& recorded, int iteration)>
      apply;
  std::function<void()> note = {};  ///< if set, prints notes after all iterations
};

/// A RecordedPart identifies the part of a run that was recorded.
struct RecordedPart {
  std::int64_t first = 0;  ///< number of the first recorded iteration in its run, counting from 0
  bool repeats = false;    ///< whether the run repeated its schedule from the start after the last iteration,
                           ///< as `import` assumes
};

/// Makes a change that runs another plan, priced by a RecordedCostModel. `files` must outlive the result, and
/// errors name its `schedule_file`. `parts` receives the sources of the prices, summed over iterations.
/// Iteration n of the run uses the schedule's iteration n.
ReplayChange other_plan(const std::string& name, const PlanFiles& files, const std::string& schedule_file,
                        RecordedPart part, PricedParts& parts);

/// Makes a change that runs the same work in another pipeline order, with another number of microbatches, or
/// both. If `wanted` is empty, the order stays the same.
ReplayChange other_order(std::optional<OrderKind> wanted, const Reordering& reordering,
                         const ReplayReference& reference = {});

/// Makes a change that runs the same work in the user's pipeline order. `json` is the text of a file of
/// schema "dflop.order" for the program's pipeline ranks, each with the same number of stages. `file` names
/// it in errors.
ReplayChange user_order(const std::string& file, const std::string& json, const Reordering& reordering,
                        const ReplayReference& reference = {});

/// Makes a change that scales the latency and the bandwidth of links; see rescale_links().
ReplayChange other_links(double latency_scale, double bandwidth_scale,
                         const std::optional<ClusterSpec>& cluster);

/// Makes a change in which these ranks compute as fast as the other ranks of their collectives. Before each
/// collective, each of them gets the median of the times that the other ranks take before the same
/// collective. These times include compute and all delays of the rank itself, such as late data.
ReplayChange as_others(const std::vector<int>& ranks);

struct ReplayRun {
  std::string name;
  Timeline timeline;
  /// Whether the timeline's memory includes activations and buffers, not only the model state.
  bool memory = true;
};

/// ReplayConditions are the conditions under which the program runs after all changes.
struct ReplayConditions {
  std::string name;  ///< name in the table; empty: there are no conditions and no row
  WhatIf what_if;
  std::optional<ClusterSpec> cluster;  ///< the cluster with the shared links; required for
                                       ///< NetworkModel::contention
  ReplayReference reference = {};
  /// Number of recorded iterations; repetition r of iteration k has run number r * iterations + k.
  std::size_t iterations = 1;
};

struct ReplayedIteration {
  std::vector<ReplayRun> runs;
  /// Makespans of all repetitions of the last run; empty if there is only one.
  std::vector<Seconds> repeated;
};

/// A RecordedIteration is an iteration of a recording.
struct RecordedIteration {
  const Timeline& timeline;
  std::string file;  ///< names the recording in errors
  int number = 0;    ///< counts from 0
};

/// A ReplaySequence carries the start times of ranks from one iteration to the next, for iterations without a
/// barrier between them.
struct ReplaySequence {
  std::vector<StepStart> rows = {};  ///< start of the next iteration, for each run except the recorded one
  std::vector<StepStart> repeated = {};  ///< start of the next iteration, for each repetition of the last run
};

/// Returns the recording, its replay, a run for each change on top of the previous ones, and then a run under
/// the conditions. All use the recording's number of cores, unless the conditions set it. `detail` applies
/// only to the last run; the others keep no spans. A run that stalls is not repeated. If `sequence` is not
/// null, each run continues from the end of the same run in the previous iteration; all earlier iterations
/// must have used this sequence.
/// @throws Error (input) naming the change that is not possible; Error (usage) if the cluster has fewer GPUs
/// than the program has ranks; what recorded_program() and ConditionedProgram throw
ReplayedIteration replay_iteration(const RecordedIteration& iteration,
                                   const std::vector<ReplayChange>& changes,
                                   const ReplayConditions& conditions, Detail detail,
                                   ReplaySequence* sequence = nullptr);

}  // namespace dflop
