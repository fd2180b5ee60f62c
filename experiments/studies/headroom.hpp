// A plan that fits the batches it was made for may not fit those of the whole run: this says how likely that
// is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/studies/study.hpp"

namespace dflop {

/// In a table a plan that does not hold some further batch has this mark.
inline constexpr std::string_view kMayNotFit = " !";

/// A Headroom says what further batches need of a GPU's memory.
struct Headroom {
  std::string scheduler = {};    ///< that filled them
  bool respects_memory = false;  ///< and kept them within memory where it could
  std::size_t batches = 0;       ///< that were drawn
  std::size_t overruns = 0;      ///< of these, need more than is usable, or nothing keeps them within it
  Bytes mean = {};               ///< of the fullest GPU, over the drawn batches that were filled
  Bytes most = {};
  Bytes longest = {};        ///< of the fullest GPU in batches with the longest samples
  bool longest_fits = true;  ///< these
  Bytes usable = {};
  /// This is the probability that a batch does not fit: overrun_chance(), for random microbatches at least
  /// exponential_tail(); where memory is respected the part of the drawn batches that did not fit. It is
  /// never below the part of all batches that hold the longest sample, where that one does not fit.
  double chance = 0;

  bool holds_all() const { return overruns == 0 && longest_fits; }

  /// Returns the probability that one of so many batches does not fit.
  double chance_of_run(double batches) const;
};

/// Estimates the probability that a peak is above a limit. Each is the largest of many ranks, so that the
/// peaks are taken to have a generalized extreme value distribution, which has an upper end where the largest
/// sample limits them; it is fitted by probability-weighted moments (Hosking, Wallis and Wood, 1985). The
/// result is never below the part of the peaks that is above.
double overrun_chance(std::span<const double> peaks, double limit);

/// Estimates the same from an exponential distribution of what the largest tenth of the peaks has beyond the
/// others; at most that tenth. Random microbatches have such a tail, as each long sample that comes to others
/// adds to the peak.
double exponential_tail(std::span<const double> peaks, double limit);

/// Returns describe(), marked where the plan's layout is unconfirmed and where it may not fit.
inline std::string marked(const Plan& plan, bool fits_further) {
  return marked(plan) + std::string(fits_further ? "" : kMayNotFit);
}

/// Fills headroom_batches() with a scheduler and finds the fullest GPU of each, without a run. Where random
/// microbatches come near to the memory, up to 4096 batches more are drawn. A plan with a microbatch for each
/// sample that holds the largest one everywhere never runs out of memory.
Headroom estimate_headroom(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                           const std::string& scheduler, bool respects_memory, std::uint64_t seed);

/// Returns "74.1 GiB in the mean, 78.9 at most and 79.6 with the longest samples, of 76.0; 3 of 64 batches do
/// not fit, nor do the longest samples; > 99 % of runs of 5860 iterations end out of memory".
std::string describe(const Headroom& headroom, double iterations);

/// Returns the figures of a headroom for a block of assumptions, from its scheduler to the chance that a run
/// of so many iterations ends out of memory.
std::vector<std::pair<std::string, Cell>> figures_of(const Headroom& headroom, double iterations);

}  // namespace dflop
