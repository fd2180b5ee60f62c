// An Explanation says what the time of an iteration hangs on, and what it would gain. Beside it stands what
// fills the memory of ranks.
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
#include "experiments/studies/options.hpp"
#include "sim/analysis/critical_path.hpp"
#include "sim/analysis/relaxations.hpp"
#include "sim/conditions.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {

/// Adds --explain and --html.
void add_explain_options(Options& options);

/// Refuses --explain with a format that has room for one table, which the explanation is not in.
/// @throws Error (usage)
void require_room_for_explanation(const Values& values, Format format);

/// Tells whether --explain or --html was given.
bool wants_explanation(const Values& values);

struct Gain {
  Relaxation relaxation;
  Nanoseconds makespan{0};  ///< with the relaxation
};

struct Explanation {
  Timeline timeline;  ///< with spans
  std::vector<PathLink> path;
  std::vector<Gain> gains;     ///< largest first
  std::size_t iteration = 0;   ///< which it is
  std::size_t iterations = 1;  ///< of how many
};

/// Simulates the program, and once more for each relaxation, these in parallel.
/// @throws Error (internal) as simulate(), and if the run stalls.
Explanation explain(const Program& program, const ProgramCosts& costs, const Conditions& conditions = {});

/// Returns the iteration that takes longest, the first of equals. @pre there is one
std::size_t slowest_iteration(const std::vector<Timeline>& iterations);

/// Returns "iteration 3, the slowest of 8"; "the iteration" where there is one.
std::string explained_iteration(const Explanation& explanation);

/// Returns the critical path by stage and operation: seconds, which the text shows as % of the makespan. A
/// row per stage on the path and a last one for all.
Table path_table(const Explanation& explanation);

/// Returns makespan and gain of each relaxation.
Table gains_table(const Explanation& explanation);

/// Says of each stage that is on much of the path and would gain little without its compute why: what else
/// the iteration takes as long for.
std::vector<std::string> small_gains(const Explanation& explanation);

/// Returns both tables with their headings, as wide as the terminal allows.
std::string explanation_text(const Explanation& explanation);

/// Returns {"iteration", "makespan_s", "critical_path": [...], "gains": [...]}.
nlohmann::ordered_json explanation_json(const Explanation& explanation);

/// Returns what --explain prints: the explanation, or null where only --html was given.
const Explanation* printed(const Values& values, const std::optional<Explanation>& explanation);

/// Returns the critical path with names as "stage 2 backward mb 5" and "message 1->2 mb 3"; empty without
/// one.
std::vector<PathSlice> path_slices(const std::optional<Explanation>& explanation);

/// A FullestRank is the group on the fullest GPU of any iteration; the earliest of equals. Of two on a shared
/// GPU it is the one that needs more.
struct FullestRank {
  std::size_t iteration = 0;
  std::size_t group = 0;
};

/// Finds the fullest rank. @pre an iteration has a group
FullestRank fullest_rank(std::span<const Timeline> iterations);

/// Returns one row: who the fullest rank is, when its memory is fullest and what is live then.
Table fullest_rank_table(std::span<const Timeline> iterations);

/// Adds to a table with a row per group when and with what each is fullest.
void add_memory_columns(Table& groups, const Timeline& timeline);

/// Returns what the other module needs of the GPUs of a group, as "; with the 3.0 GiB of the other rank on
/// its GPU 82.1"; nothing where GPUs are not shared.
std::string with_other_module(const Timeline& timeline, const GroupUsage& group);

/// Returns "rank 8 (llm 0) needs 91.2 GiB at 3.210 s of iteration 2: parameters 12.1, gradients 24.3,
/// optimizer 6.0, activations 48.0, buffers 0.8".
std::string describe_fullest_rank(std::span<const Timeline> iterations);

}  // namespace dflop
