// check_choices() tests how good a kernel table's choices are, on calls that were not measured for the table.
#pragma once

#include <vector>

#include "backend/profile/kernel_bench.hpp"

namespace dflop {

/// A ChoiceQuality holds the total time of calls under three choices of variants, in nanoseconds. Each call
/// counts by its weight.
struct ChoiceQuality {
  std::int64_t calls = 0;
  double chosen_ns = 0;  ///< chosen by the table
  double default_ns = 0;
  double oracle_ns = 0;  ///< the fastest of all variants, found by running them all

  ChoiceQuality& operator+=(const ChoiceQuality& other);
};

/// Runs all variants of the calls in rounds. Each round begins with a different variant. Every second round
/// picks the oracle's choice, and the other rounds time all three choices; otherwise the oracle would pick
/// the luckiest variant. Times are medians over rounds, because some rounds are interrupted.
/// @throws the errors of KernelBench, and the exceptions of `progress`, which end the measurement
ChoiceQuality check_choices(const RankContext& rank, const KernelTable& table,
                            const std::vector<TunedCall>& calls, int rounds, const TuningOptions& options);

}  // namespace dflop
