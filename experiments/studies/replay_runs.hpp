// A recorded iteration is run again here: as it was, and under what-ifs.
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
#include "experiments/studies/study.hpp"
#include "experiments/studies/what_if.hpp"
#include "sim/step_sequence.hpp"

namespace dflop {

/// Tells whether there are stages, and all have layers or something else that computes, so that their shapes
/// are known.
bool knows_shapes(std::span<const Stage> stages);

/// A ReplayReference tells of the recorded model what the recording does not say: how whole backwards would
/// split and, with a profile, what instructions keep in memory. Without either they stay unknown. Of its
/// cluster it tells the memory of a GPU, which limits orders that depend on it.
struct ReplayReference {
  std::string name;  ///< for people
  std::shared_ptr<const SumCostModel> profile = {};
  std::optional<ModelSpec> model = {};
  std::optional<Bytes> usable_memory = {};
};

/// Returns the weight part of each stage's whole backwards, by the profile's times or else by the model's
/// FLOP, recomputation included: of each product a backward makes those for its weights and as many for its
/// input, of attention twice the forward's (Dao 2023) and all for the input. Empty where neither is known, or
/// the program does not know its stages' shapes.
std::vector<double> weight_shares(const Program& program, const ReplayReference& reference);

/// A ReplayChange is one change. It gets what the changes before it have made of the recording.
struct ReplayChange {
  std::string name;  ///< of its row
  std::function<PricedProgram(const PricedProgram& before, const RecordedProgram& recorded, int iteration)>
      apply;
  std::function<void()> note = {};  ///< says, after all iterations, what is to be known of them; or nothing
};

/// A RecordedPart says which part of its run a recording is.
struct RecordedPart {
  std::int64_t first = 0;  ///< iteration of the run, counted from 0
  bool repeats = false;    ///< behind its schedule's end the run began anew with it, as `import` takes runs
};

/// Runs another plan, priced by a RecordedCostModel. `target` is that of the plan and must outlive the
/// result; `parts` receives where the prices come from, all iterations together. Each iteration runs that of
/// the schedule which has its number in the run.
ReplayChange other_plan(const std::string& name, const Plan& plan, const ScheduleFile& schedule,
                        const std::string& schedule_file, const Target& target, RecordedPart part,
                        PricedParts& parts);

/// Runs the same work in another order, or for another number of microbatches, or both. Without `wanted`
/// the order is the one that the program has.
ReplayChange other_order(std::optional<OrderKind> wanted, const Reordering& reordering,
                         const ReplayReference& reference = {});

/// Runs the same work in an order of the user's: the text of a file of schema "dflop.order", read for as many
/// pipeline ranks as the program has and an equal number of stages on each.
ReplayChange user_order(const std::string& file, const std::string& json, const Reordering& reordering,
                        const ReplayReference& reference = {});

/// Gives links another latency and bandwidth; see rescale_links().
ReplayChange other_links(double latency_scale, double bandwidth_scale,
                         const std::optional<ClusterSpec>& cluster);

/// Lets ranks that meet in collectives compute as long as the other ranks do: up to each collective that it
/// enters, a rank takes the median of what the others take to where they enter as many. What they take is
/// compute and all that holds it up on their own side, as late data.
ReplayChange as_others(const std::vector<int>& ranks);

struct ReplayRun {
  std::string name;
  Timeline timeline;
  bool memory = true;  ///< whether the timeline's memory is more than the model state
};

/// ReplayConditions are what the program meets when all changes are made.
struct ReplayConditions {
  std::string name;  ///< of its row; empty: nothing, and no row
  WhatIf what_if;
  std::optional<ClusterSpec> cluster;  ///< whose links are shared; needed for NetworkModel::contention
  ReplayReference reference = {};
  std::size_t iterations = 1;  ///< recorded; run r of iteration k is run r * iterations + k of a seed
};

struct ReplayedIteration {
  std::vector<ReplayRun> runs;
  std::vector<Seconds> repeated;  ///< makespans of all repetitions of the last run, where there are several
};

/// A ReplaySequence has the starts of the next iteration's runs, where iterations follow each other without a
/// barrier between them.
struct ReplaySequence {
  std::vector<StepStart> rows = {};      ///< of the runs but the recorded one
  std::vector<StepStart> repeated = {};  ///< of all repetitions of the last run
};

/// Runs the recording, its replay, each what-if on top of those before it, and then the conditions; all on
/// the recording's cores, unless the conditions have others. Spans (`detail`) are kept of the last run alone.
/// A run that stalls is not repeated. With a `sequence`, of all iterations before, each run goes on from
/// where the same run of the iteration before ended.
/// @throws Error (input) as recorded_program(), or naming the what-if that is not possible; Error (usage) as
/// ConditionedProgram, or if the cluster has fewer GPUs than the program has ranks.
ReplayedIteration replay_iteration(const Timeline& recording, const std::string& file, int iteration,
                                   const std::vector<ReplayChange>& changes,
                                   const ReplayConditions& conditions, Detail detail,
                                   ReplaySequence* sequence = nullptr);

}  // namespace dflop
