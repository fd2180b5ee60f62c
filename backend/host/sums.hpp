// Sums over the ranks of a collective on the host.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/communicator.hpp"

namespace dflop {

/// The same piece of memory as each rank has it; what is read, and where its sum goes, which may be the same
/// memory.
struct HostSum {
  Element element = Element::f32;
  std::vector<const void*> inputs;  ///< one or more, in the order in which they are added
  std::vector<void*> outputs;       ///< each gets the sum
};

/// outputs[.][i] = sum over k of inputs[k][i] for i in [begin, end): f32 and f64 in their own precision, bf16
/// in f32 and then rounded to the nearest.
void add_up(const HostSum& sum, std::size_t begin, std::size_t end);

}  // namespace dflop
