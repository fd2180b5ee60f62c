// This file explains what determines the time of an iteration, and how much time each relaxation would save.
// It also explains the memory of the fullest rank.
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

/// Simulates the program, and then once for each relaxation, in parallel.
/// @throws Error (internal) if the run stalls; what simulate() throws
Explanation explain(const Program& program, const ProgramCosts& costs, const Conditions& conditions = {});

/// Returns the index of the longest iteration, the first among equals. @pre there is at least one
std::size_t slowest_iteration(const std::vector<Timeline>& iterations);

/// Returns "iteration 3, the slowest of 8"; "the iteration" if there is only one.
std::string explained_iteration(const Explanation& explanation);

/// Returns the time on the critical path by stage and operation. There is a row for each stage on the path,
/// and a last row with sums. Cells are in seconds; text shows them as % of the makespan.
Table path_table(const Explanation& explanation);

/// Returns a table with the makespan and the gain of each relaxation.
Table gains_table(const Explanation& explanation);

/// Returns a sentence for each stage whose compute takes much of the critical path, although the iteration
/// would be little shorter without it. The sentence names what would then limit the iteration.
std::vector<std::string> small_gains(const Explanation& explanation);

/// Returns path_table(), gains_table() and small_gains() as text with headings, as wide as the terminal.
std::string explanation_text(const Explanation& explanation);

/// Returns {"iteration", "makespan_s", "critical_path": [...], "gains": [...]}.
nlohmann::ordered_json explanation_json(const Explanation& explanation);

/// Returns the pieces of the critical path with names such as "stage 2 backward mb 5" and "message 1->2 mb
/// 3"; empty if there is no explanation.
std::vector<PathSlice> path_slices(const std::optional<Explanation>& explanation);

/// A FullestRank says which group, in which iteration, has the GPU with the highest memory peak (the earliest
/// among equals). On a shared GPU it is the group that needs more memory.
struct FullestRank {
  std::size_t iteration = 0;
  std::size_t group = 0;
};

/// Finds the fullest rank. @pre at least one iteration has a group
FullestRank fullest_rank(std::span<const Timeline> iterations);

/// Returns one row: the fullest rank, the time of its peak, and its memory at that time.
Table fullest_rank_table(std::span<const Timeline> iterations);

/// Adds columns with the time and the contents of each group's memory peak to a table with a row per group.
void add_memory_columns(Table& groups, const Timeline& timeline);

/// Returns a text with the memory of a group's GPU including the other module's rank, such as "; with the 3.0
/// GiB of the other rank on its GPU, it is 82.1"; empty if GPUs are not shared.
std::string with_other_module(const Timeline& timeline, const GroupUsage& group);

/// Returns "rank 8 (llm 0) needs 91.2 GiB at 3.210 s of iteration 2: parameters 12.1, gradients 24.3,
/// optimizer 6.0, activations 48.0, buffers 0.8".
std::string describe_fullest_rank(std::span<const Timeline> iterations);

}  // namespace dflop
