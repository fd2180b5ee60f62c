// How good the choices of a table are is seen on calls that it was not measured on.
#pragma once

#include <vector>

#include "backend/profile/kernel_bench.hpp"

namespace dflop {

/// A ChoiceQuality has the times of calls with three choices, in nanoseconds, each call by its weight.
struct ChoiceQuality {
  std::int64_t calls = 0;
  double chosen_ns = 0;  ///< by a table
  double default_ns = 0;
  double oracle_ns = 0;  ///< the fastest of all variants, which all ran for it

  ChoiceQuality& operator+=(const ChoiceQuality& other);
};

/// Runs all variants of calls, in turns that begin with another one each. The oracle's choice is made on
/// every second round and all three are timed on the others: it would else pick the luckiest. Times are the
/// medians of rounds, as some are interrupted.
/// @throws as KernelBench; what `progress` throws ends the measuring
ChoiceQuality check_choices(const RankContext& rank, const KernelTable& table,
                            const std::vector<TunedCall>& calls, int rounds, const TuningOptions& options);

}  // namespace dflop
