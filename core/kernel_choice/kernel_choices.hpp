// KernelChoices say which variants the ranks of a run take in one step: the same on all of them, as they are
// fixed before it begins.
#pragma once

#include <string>
#include <string_view>

#include "core/kernel_choice/kernel_map.hpp"
#include "core/kernel_choice/kernel_stats.hpp"

namespace dflop {

/// A KernelChoice is what calls of one key take. Of a rank's calls in a step, the first 2 x trials alternate
/// between the variant that is tried and the one that is in use, in the order tried, used, used, tried: what
/// goes slower and slower then does neither of them an injustice. A step may begin with a later place of it.
struct KernelChoice {
  std::uint16_t variant = 0;  ///< in use
  std::uint16_t tried = 0;
  std::uint16_t trials = 0;  ///< calls of each rank
  std::uint8_t first = 0;    ///< place in the order of a rank's first call
  bool measured = true;      ///< its default was, at this key: only then other keys may take what it has
  double mean_ns = 0;        ///< that the variant in use is known to take; 0: not known

  bool operator==(const KernelChoice&) const = default;

  /// Returns what a rank's call takes, counted from 0 in the step.
  std::size_t of_call(std::uint32_t call) const {
    const std::uint32_t place = (call + first) % 4;
    return call < 2U * trials && (place == 0 || place == 3) ? tried : variant;
  }
};

/// KernelChoices are fixed for a step. A key that is not there takes what the nearest_index() of those that
/// were measured has in use.
struct KernelChoices {
  KernelMap<KernelChoice> by_key;
  /// Of calls beyond trials one of so many is timed, another one in each step; 0: none is.
  std::uint32_t timed_one_of = 0;
  std::uint64_t step = 0;

  bool operator==(const KernelChoices&) const = default;

  KernelChoice choice(KernelKey key) const;
};

/// A KernelObservation is what one rank has seen of a key in one step.
struct KernelObservation {
  std::uint64_t key = 0;
  std::int64_t calls = 0;
  std::int64_t timed = 0;
  std::uint32_t variant = 0;
  std::uint32_t tried = 0;
  KernelStats used;       ///< of the variant in use, nanoseconds as in a KernelTable
  KernelStats in_trials;  ///< of these, what alternated with trials
  KernelStats trials;     ///< of the variant that was tried
  double least_trial_ns = 0;
  double excess_ns = 0;  ///< that calls on trial took longer than `mean_ns` says, one by one, as taken

  bool operator==(const KernelObservation&) const = default;
};

/// Returns choices as bytes for other processes, and these as choices.
std::string to_bytes(const KernelChoices& choices);
KernelChoices parse_choices(std::string_view bytes);

}  // namespace dflop
