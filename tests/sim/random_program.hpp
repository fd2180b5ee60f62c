// Random Programs with random costs, for property tests.
#pragma once

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {

/// A Program that verify() accepts: 1 to 4 stages of 1 to 3 groups, 1 to 5 microbatches in a random order,
/// whole or split backwards, messages and M x N exchanges between random groups, collectives over random
/// groups. Durations of 0 to 999 ns, so that simultaneous events are common.
PricedProgram make_random_program(Random& random);

/// Assigns the groups of a program to two modules that share GPUs, with random bandwidths, some of them 0 or
/// 1.
PricedProgram make_shared_random_program(Random& random);

}  // namespace dflop::testing
