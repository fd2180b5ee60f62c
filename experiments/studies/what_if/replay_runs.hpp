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

/// Returns whether the stages' shapes are known: there are stages, and each has layers or another computing
/// part.
bool knows_shapes(std::span<const Stage> stages);

/// A ReplayReference adds facts about the recorded model that the recording lacks: how whole backward passes
/// would split and, with a profile, the memory that instructions keep. It also has the memory of a GPU of the
/// recorded cluster, which limits some orders. Whatever is missing stays unknown.
struct ReplayReference {
  std::string name;  ///< shown to people
  std::shared_ptr<const SumCostModel> profile = {};
  std::optional<ModelSpec> model = {};
  std::optional<Bytes> usable_memory = {};
};

/// Returns the weight fraction of each stage's whole backward passes, from the profile's times or else from
/// the model's FLOP, including recomputation. The backward pass of each product has as many FLOP for its
/// weights as for its input; attention has twice the FLOP of its forward pass (Dao 2023), all for its input.
/// Empty if neither source is known, or if the program does not know the shapes of its stages.
std::vector<double> weight_shares(const Program& program, const ReplayReference& reference);

/// A ReplayChange is one what-if. It is applied to the result of the preceding changes.
struct ReplayChange {
  std::string name;  ///< in the table
  std::function<PricedProgram(const PricedProgram& before, const RecordedProgram& recorded, int iteration)>
      apply;
  std::function<void()> note = {};  ///< if set, reports notes after all iterations
};

/// A RecordedPart identifies the part of a run that was recorded.
struct RecordedPart {
  std::int64_t first = 0;  ///< iteration of the run, counting from 0
  bool repeats = false;    ///< at the end of its schedule, the run started the schedule again, as `import`
                           ///< assumes
};

/// Makes a change that runs another plan, priced by a RecordedCostModel. `files` must outlive the result, and
/// errors name its `schedule_file`. `parts` receives the sources of the prices, summed over iterations. Each
/// iteration runs the schedule's iteration with the same number in the run.
ReplayChange other_plan(const std::string& name, const PlanFiles& files, const std::string& schedule_file,
                        RecordedPart part, PricedParts& parts);

/// Makes a change that runs the same work in another order, with another number of microbatches, or both.
/// Without `wanted` the program keeps its order.
ReplayChange other_order(std::optional<OrderKind> wanted, const Reordering& reordering,
                         const ReplayReference& reference = {});

/// Makes a change that runs the same work in the user's order: the text of a file of schema "dflop.order",
/// read for the program's pipeline ranks, with an equal number of stages on each.
ReplayChange user_order(const std::string& file, const std::string& json, const Reordering& reordering,
                        const ReplayReference& reference = {});

/// Makes a change to the latency and bandwidth of links; see rescale_links().
ReplayChange other_links(double latency_scale, double bandwidth_scale,
                         const std::optional<ClusterSpec>& cluster);

/// Makes a change in which these ranks, which meet others in collectives, compute as fast as the others.
/// Before each collective, a rank takes the median time that the other ranks take before the same collective
/// in their sequence. This time includes compute and every delay on a rank's own side, such as late data.
ReplayChange as_others(const std::vector<int>& ranks);

struct ReplayRun {
  std::string name;
  Timeline timeline;
  bool memory = true;  ///< whether the timeline's memory includes more than the model state
};

/// ReplayConditions are the conditions under which the program runs after all changes.
struct ReplayConditions {
  std::string name;  ///< in the table; empty: there are no conditions and no row
  WhatIf what_if;
  std::optional<ClusterSpec> cluster;  ///< the cluster with the shared links; required for
                                       ///< NetworkModel::contention
  ReplayReference reference = {};
  std::size_t iterations = 1;  ///< number of recorded iterations; run r of iteration k is run r * iterations
                               ///< + k of a seed
};

struct ReplayedIteration {
  std::vector<ReplayRun> runs;
  std::vector<Seconds> repeated;  ///< makespans of all repetitions of the last run, if there are several
};

/// A RecordedIteration is an iteration of a recording.
struct RecordedIteration {
  const Timeline& timeline;
  std::string file;  ///< names the recording in errors
  int number = 0;    ///< counts from 0
};

/// A ReplaySequence holds the start times of the next iteration's runs, for iterations that follow each other
/// without a barrier.
struct ReplaySequence {
  std::vector<StepStart> rows = {};      ///< for each run except the recorded one
  std::vector<StepStart> repeated = {};  ///< for each repetition of the last run
};

/// Runs the recording, its replay, each what-if on top of the previous ones, and then the conditions. All use
/// the recording's cores, unless the conditions set others. Spans (`detail`) are kept only for the last run.
/// A run that stalls is not repeated. With a `sequence` of all iterations before, each run continues from the
/// end of the same run in the previous iteration.
/// @throws Error (input) as recorded_program(), or naming the what-if that is not possible; Error (usage) as
/// ConditionedProgram, or if the cluster has fewer GPUs than the program has ranks.
ReplayedIteration replay_iteration(const RecordedIteration& iteration,
                                   const std::vector<ReplayChange>& changes,
                                   const ReplayConditions& conditions, Detail detail,
                                   ReplaySequence* sequence = nullptr);

}  // namespace dflop
