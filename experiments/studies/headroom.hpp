// A plan that fits the batches of its planning may not fit all batches of a run. This file estimates the
// probability that it does not.
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

/// The mark in tables for a plan that does not fit at least one further batch.
inline constexpr std::string_view kMayNotFit = " !";

/// A Headroom describes how much GPU memory further batches need.
struct Headroom {
  std::string scheduler = {};    ///< the scheduler that made their microbatches
  bool respects_memory = false;  ///< whether the scheduler kept them within memory if possible
  std::size_t batches = 0;       ///< number of batches drawn
  /// Number of drawn batches that exceed the usable memory, or cannot be kept within it.
  std::size_t overruns = 0;
  Bytes mean = {};  ///< on the fullest GPU, over the drawn batches that were scheduled
  Bytes most = {};
  Bytes longest = {};        ///< on the fullest GPU, in batches with the longest samples
  bool longest_fits = true;  ///< whether the batches with the longest samples fit
  Bytes usable = {};
  /// The probability that a batch does not fit. It comes from overrun_chance(), and is at least
  /// exponential_tail() for random microbatches. If the scheduler respects memory, it is the fraction of
  /// drawn batches that did not fit. If the longest sample does not fit, it is at least the fraction of
  /// batches that contain this sample.
  double chance = 0;

  bool holds_all() const { return overruns == 0 && longest_fits; }

  /// Returns the probability that at least one of `batches` batches does not fit.
  double chance_of_run(double batches) const;
};

/// Estimates the probability that a memory peak exceeds a limit. Each peak is a max over many ranks, so peaks
/// are assumed to have a generalized extreme value distribution, which has an upper bound if the largest
/// sample limits the peaks. The distribution is fitted by probability-weighted moments (Hosking, Wallis and
/// Wood, 1985). The result is at least the fraction of peaks above the limit.
double overrun_chance(std::span<const double> peaks, double limit);

/// Estimates the probability that a memory peak exceeds a limit, from an exponential distribution fitted to
/// the largest tenth of the peaks. The result is at most 0.1. Random microbatches have such a tail, because
/// each further long sample in a microbatch adds to the peak.
double exponential_tail(std::span<const double> peaks, double limit);

/// Returns describe(plan), with kUnconfirmed if the plan's layout is unconfirmed and kMayNotFit if the plan
/// may not fit.
inline std::string marked(const Plan& plan, bool fits_further) {
  return marked(plan) + std::string(fits_further ? "" : kMayNotFit);
}

/// Schedules the headroom_batches() and computes the memory of the fullest GPU for each, without a
/// simulation. If random microbatches come close to the memory limit, up to 4096 more batches are drawn. A
/// plan with one microbatch per sample never runs out of memory if the largest sample fits everywhere.
Headroom estimate_headroom(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                           const std::string& scheduler, bool respects_memory, std::uint64_t seed);

/// Returns a text such as "74.1 GiB on average, at most 78.9 and 79.6 with the longest samples, of 76.0
/// usable; 3 of 64 batches do not fit, nor do the longest samples; > 99 % of runs of 5860 iterations run out
/// of memory".
std::string describe(const Headroom& headroom, double iterations);

/// Returns the figures of a headroom for a block of assumptions, from its scheduler to the probability that a
/// run of `iterations` iterations runs out of memory.
std::vector<std::pair<std::string, Cell>> figures_of(const Headroom& headroom, double iterations);

}  // namespace dflop
