// The data-blind assignment of common training loops: a shuffled batch, cut into equal parts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/plan.hpp"

namespace dflop {

/// Shuffles the samples by (seed, iteration) and cuts them into consecutive bins whose counts differ by at
/// most one, the larger ones first. This is what the scheduler "random" does, without looking at any cost.
/// @throws Error (input) if there are fewer samples than bins.
Assignment random_assignment(std::size_t samples, const Plan& plan, std::uint64_t seed,
                             std::uint64_t iteration);

}  // namespace dflop
