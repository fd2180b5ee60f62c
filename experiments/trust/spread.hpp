// This file reports results that differ between seeds, as a mean and an interval.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/studies/comparison.hpp"

namespace dflop {

/// A Spread is the mean of values and its uncertainty: Student's 95 % interval, which assumes independent,
/// identically distributed values.
struct Spread {
  std::size_t count = 0;
  double mean = 0;
  double half_width = 0;  ///< half the width of the interval around the mean; 0 for fewer than two values
  double least = 0;
  double most = 0;
};

/// Returns the spread of values; its count is 0 if there are none.
Spread spread_of(std::span<const double> values);

/// Returns a text such as "21.93 +- 0.31", or only the mean if there is a single value.
std::string text_of(const Spread& spread, int decimals);

/// SeedRuns holds the samples/s of a system on the batches of each seed, starting with the input's seed. The
/// value for a seed is 0 if the plan runs out of GPU memory, or if its microbatches do not obey the caps.
struct SeedRuns {
  std::string system;
  std::vector<double> samples_per_s;
};

/// Schedules and runs each system's plan on the batches of `seeds` consecutive seeds, starting with the
/// input's seed. Plans are not made again: they were made for the first seed.
std::vector<SeedRuns> run_seeds(const std::vector<System>& systems, const Target& target,
                                const ComparisonInput& input, int seeds);

/// Returns a row for each system: samples/s (mean with interval, min and max) and speedups, which compare
/// runs on the same batches. For a training run with `train_samples` samples on `gpus` GPUs, also returns its
/// hours.
Table seeds_table(const std::vector<SeedRuns>& runs, const std::optional<double>& train_samples, int gpus);

}  // namespace dflop
