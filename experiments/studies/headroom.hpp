// A plan that fits the batches it was made for may not fit all batches of the run. This file estimates how
// likely that is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/target.hpp"

namespace dflop {

/// Tables put this mark on a plan that does not fit some further batch.
inline constexpr std::string_view kMayNotFit = " !";

/// A Headroom describes how much GPU memory further batches need.
struct Headroom {
  std::string scheduler = {};    ///< the scheduler that made their microbatches
  bool respects_memory = false;  ///< whether it kept them within memory if possible
  std::size_t batches = 0;       ///< number of batches drawn
  std::size_t overruns = 0;      ///< how many of them exceed the usable memory, or cannot be kept within it
  Bytes mean = {};               ///< on the fullest GPU, over the drawn batches that were scheduled
  Bytes most = {};
  Bytes longest = {};        ///< on the fullest GPU, in batches with the longest samples
  bool longest_fits = true;  ///< whether those fit
  Bytes usable = {};
  /// The probability that a batch does not fit: overrun_chance(), and for random microbatches at least
  /// exponential_tail(). If memory is respected, it is the fraction of drawn batches that did not fit. If the
  /// longest sample does not fit, it is at least the fraction of all batches that contain this sample.
  double chance = 0;

  bool holds_all() const { return overruns == 0 && longest_fits; }

  /// Returns the probability that at least one of `batches` batches does not fit.
  double chance_of_run(double batches) const;
};

/// Estimates the probability that a peak exceeds a limit. Each peak is a max over many ranks, so peaks are
/// assumed to have a generalized extreme value distribution, which is bounded above if the largest sample
/// limits them. It is fitted by probability-weighted moments (Hosking, Wallis and Wood, 1985). The result is
/// at least the fraction of peaks above the limit.
double overrun_chance(std::span<const double> peaks, double limit);

/// Estimates the same from an exponential distribution fitted to the largest tenth of the peaks; the result
/// is at most 0.1. Random microbatches have such a tail, because each further long sample in a microbatch
/// adds to the peak.
double exponential_tail(std::span<const double> peaks, double limit);

/// Returns describe(), with marks if the plan's layout is unconfirmed and if the plan may not fit.
inline std::string marked(const Plan& plan, bool fits_further) {
  return marked(plan) + std::string(fits_further ? "" : kMayNotFit);
}

/// Schedules headroom_batches() and finds the fullest GPU of each, without a simulation. If random
/// microbatches come close to the memory limit, up to 4096 more batches are drawn. A plan with one microbatch
/// per sample never runs out of memory if the largest sample fits everywhere.
Headroom estimate_headroom(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                           const std::string& scheduler, bool respects_memory, std::uint64_t seed);

/// Returns "74.1 GiB in the mean, 78.9 at most and 79.6 with the longest samples, of 76.0; 3 of 64 batches do
/// not fit, nor do the longest samples; > 99 % of runs of 5860 iterations end out of memory".
std::string describe(const Headroom& headroom, double iterations);

/// Returns the figures of a headroom for a block of assumptions, from its scheduler to the probability that a
/// run of `iterations` iterations runs out of memory.
std::vector<std::pair<std::string, Cell>> figures_of(const Headroom& headroom, double iterations);

}  // namespace dflop
