// What differs from seed to seed is told as a mean with an interval.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/studies/comparison.hpp"

namespace dflop {

/// A Spread is the mean of values and how far it may be off: Student's interval of 95 %, which holds where
/// the values are drawn alike and independently.
struct Spread {
  std::size_t count = 0;
  double mean = 0;
  double half_width = 0;  ///< of the interval around the mean; 0 of fewer than two values
  double least = 0;
  double most = 0;
};

/// Returns the spread of values; nothing of none.
Spread spread_of(std::span<const double> values);

/// Returns "21.93 +- 0.31", or one value alone.
std::string text_of(const Spread& spread, int decimals);

/// SeedRuns are a system's samples/s on the batches of each seed, the first of the input's; 0 where the plan
/// needs more memory there than a GPU has, or its microbatches do not obey the caps.
struct SeedRuns {
  std::string system;
  std::vector<double> samples_per_s;
};

/// Draws the batches of `seeds` consecutive seeds, from the input's own on, and fills and runs each system's
/// plan, which was made for the first, on those of every seed.
std::vector<SeedRuns> run_seeds(const std::vector<System>& systems, const Target& target,
                                const ComparisonInput& input, int seeds);

/// Returns a row for each system: samples/s in the mean with its interval, least and most, the speedups, each
/// on the same batches, and of a training on so many GPUs its hours.
Table seeds_table(const std::vector<SeedRuns>& runs, const std::optional<double>& train_samples, int gpus);

}  // namespace dflop
