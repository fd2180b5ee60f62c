// An Explanation shows what determines the time of an iteration, and how much each relaxation would gain.
// This file also explains the memory of the fullest rank.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "experiments/cli/table.hpp"
#include "sim/analysis/critical_path.hpp"
#include "sim/analysis/relaxations.hpp"
#include "sim/conditions.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {

struct Gain {
  Relaxation relaxation;
  Nanoseconds makespan{0};  ///< with this relaxation
};

struct Explanation {
  Timeline timeline;  ///< with spans
  std::vector<PathLink> path;
  std::vector<Gain> gains;     ///< largest first
  std::size_t iteration = 0;   ///< index of the explained iteration
  std::size_t iterations = 1;  ///< number of iterations
};

/// Simulates the program once, and again for each relaxation, the latter in parallel.
/// @throws Error (internal) as simulate(), and if the run stalls.
Explanation explain(const Program& program, const ProgramCosts& costs, const Conditions& conditions = {});

/// Returns the longest iteration, the first among equals. @pre there is at least one
std::size_t slowest_iteration(const std::vector<Timeline>& iterations);

/// Returns "iteration 3, the slowest of 8"; "the iteration" if there is only one.
std::string explained_iteration(const Explanation& explanation);

/// Returns the critical path by stage and operation in seconds, which the text shows as % of the makespan.
/// There is a row per stage on the path and a last one for all.
Table path_table(const Explanation& explanation);

/// Returns the makespan and gain of each relaxation.
Table gains_table(const Explanation& explanation);

/// Returns a sentence for each stage that is on much of the path although little would be gained without its
/// compute. The sentence names what else takes as long.
std::vector<std::string> small_gains(const Explanation& explanation);

/// Returns both tables with headings, as wide as the terminal allows.
std::string explanation_text(const Explanation& explanation);

/// Returns {"iteration", "makespan_s", "critical_path": [...], "gains": [...]}.
nlohmann::ordered_json explanation_json(const Explanation& explanation);

/// Returns the critical path with names such as "stage 2 backward mb 5" and "message 1->2 mb 3"; empty
/// without a path.
std::vector<PathSlice> path_slices(const std::optional<Explanation>& explanation);

/// A FullestRank is the group on the fullest GPU of any iteration, the earliest among equals. On a shared GPU
/// it is the group that needs more memory.
struct FullestRank {
  std::size_t iteration = 0;
  std::size_t group = 0;
};

/// Finds the fullest rank. @pre an iteration has a group
FullestRank fullest_rank(std::span<const Timeline> iterations);

/// Returns one row: the fullest rank, the time of its peak, and its memory at that time.
Table fullest_rank_table(std::span<const Timeline> iterations);

/// Adds the time and contents of each group's memory peak to a table with a row per group.
void add_memory_columns(Table& groups, const Timeline& timeline);

/// Returns the other module's memory on a group's GPUs, such as "; with the 3.0 GiB of the other rank on its
/// GPU 82.1"; empty if GPUs are not shared.
std::string with_other_module(const Timeline& timeline, const GroupUsage& group);

/// Returns "rank 8 (llm 0) needs 91.2 GiB at 3.210 s of iteration 2: parameters 12.1, gradients 24.3,
/// optimizer 6.0, activations 48.0, buffers 0.8".
std::string describe_fullest_rank(std::span<const Timeline> iterations);

}  // namespace dflop
