#pragma once

#include "kernels/host/variants.hpp"
#include "kernels/kernels.hpp"

namespace dflop::host {

/// Sets norm_linear and swiglu_linear of kernels that have all other operations: the first variant is the
/// first of each step, and for each variant of linear there is one that computes the steps with it and, with
/// `fused`, one that does so by chunks of rows. The states are kept for the functions.
void set_fused(Kernels& kernels, bool fused, KeptStates& states);

}  // namespace dflop::host
