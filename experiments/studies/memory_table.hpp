// These tables say what fills the memory of ranks.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/timeline.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

/// A FullestRank is the group with the largest peak memory of any iteration; the earliest of equals.
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

/// Returns "rank 8 (llm 0) needs 91.2 GiB at 3.210 s of iteration 2: parameters 12.1, gradients 24.3,
/// optimizer 6.0, activations 48.0, buffers 0.8".
std::string describe_fullest_rank(std::span<const Timeline> iterations);

}  // namespace dflop
