// Conditions: what else a simulated run meets beside its costs.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/units.hpp"
#include "sim/network/network.hpp"

namespace dflop {

/// A group that computes nothing for a while. What it has sent and what others do goes on.
/// Pauses of one group may overlap, as those of two of its ranks.
struct Pause {
  static constexpr Nanoseconds kForever{std::numeric_limits<std::int64_t>::max()};

  std::int32_t group = 0;
  Nanoseconds start{0};
  Nanoseconds duration{0};  ///< kForever: it has failed
};

struct Conditions {
  /// Links that messages and collectives share. None: each takes what ProgramCosts says.
  const Network* network = nullptr;
  std::vector<Pause> pauses;
  /// On which groups take turns to compute, as CoreGate says; messages and collectives need none. 0: every
  /// rank has one.
  int cores = 0;
};

}  // namespace dflop
