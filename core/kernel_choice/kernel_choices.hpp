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
/// take part in trials. They follow the order tried, used, used, tried, beginning at position `first`, so a
/// gradual slowdown affects both variants equally.
struct KernelChoice {
  std::uint16_t variant = 0;  ///< variant in use
  std::uint16_t tried = 0;    ///< variant on trial
  std::uint16_t trials = 0;   ///< half the number of a rank's calls that take part in trials; 0: none
  std::uint8_t first = 0;     ///< position in that order at which a rank's first call stands
  bool measured = true;  ///< whether the default was timed at this key; if not, no other key uses this choice
  double mean_ns = 0;    ///< known mean time of the variant in use; 0: not known

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
  /// One in this many calls after the trials is timed, a different one in each step; 0: none.
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
  double excess_ns = 0;  ///< how much longer, in total, slow calls on trial took than the mean of the variant
                         ///< in use; in real time, not scaled

  bool operator==(const KernelObservation&) const = default;
};

/// to_bytes() converts choices to bytes for other processes; parse_choices() converts them back.
std::string to_bytes(const KernelChoices& choices);
KernelChoices parse_choices(std::string_view bytes);

}  // namespace dflop
