// KernelChoices are the kernel variants of one step. They are fixed before the step and are the same on all
// ranks.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/kernel_choice/kernel_key.hpp"
#include "core/kernel_choice/kernel_stats.hpp"

namespace dflop {

/// A KernelChoice says which variant calls of one key use. In a step, the first 2 x trials calls of a rank
/// alternate between the variant on trial and the one in use, in the order tried, used, used, tried. So a
/// gradual slowdown affects both equally. A step may begin at a later position of this order.
struct KernelChoice {
  std::uint16_t variant = 0;  ///< in use
  std::uint16_t tried = 0;
  std::uint16_t trials = 0;  ///< calls of each rank on trial
  std::uint8_t first = 0;    ///< position in the order of a rank's first call
  bool measured = true;      ///< the default was measured at this key; only then other keys may use it
  double mean_ns = 0;        ///< known mean time of the variant in use; 0: not known

  bool operator==(const KernelChoice&) const = default;

  /// Returns the variant of a rank's call, counted from 0 in the step.
  std::size_t of_call(std::uint32_t call) const {
    const std::uint32_t place = (call + first) % 4;
    return call < 2U * trials && (place == 0 || place == 3) ? tried : variant;
  }
};

/// KernelChoices have the choices of one step. A key without a choice uses the choice of the
/// nearest() measured key.
struct KernelChoices {
  std::map<KernelKey, KernelChoice> by_key;
  /// One in this many calls beyond the trials is timed, a different one in each step; 0: none.
  std::uint32_t timed_one_of = 0;
  std::uint64_t step = 0;

  bool operator==(const KernelChoices&) const = default;

  KernelChoice choice(const KernelKey& key) const;
};

/// A KernelObservation is what one rank measured for one key in one step.
struct KernelObservation {
  KernelKey key;
  std::int64_t calls = 0;
  std::int64_t timed = 0;
  std::uint32_t variant = 0;
  std::uint32_t tried = 0;
  KernelStats used;       ///< times of the variant in use, in nanoseconds, scaled as in a KernelTable
  KernelStats in_trials;  ///< the part of `used` that alternated with trials
  KernelStats trials;     ///< times of the variant on trial
  double least_trial_ns = 0;
  double excess_ns = 0;  ///< sum of the unscaled time of calls on trial beyond `mean_ns`

  bool operator==(const KernelObservation&) const = default;
};

/// Converts choices to bytes for other processes, and back.
std::string to_bytes(const KernelChoices& choices);
KernelChoices parse_choices(std::string_view bytes);

}  // namespace dflop
