// bf16 on a processor that computes in f32: for tests of what GPUs do, and slow.
#pragma once

#include <memory>

#include "kernels/kernels.hpp"

namespace dflop {

/// Kernels of bf16 on memory of the host: each operation is that of `wide`, which computes in f32, on widened
/// inputs, and its outputs are rounded to the nearest. Sums are f32 in both.
std::unique_ptr<Kernels> make_bf16_kernels(std::unique_ptr<Kernels> wide);

}  // namespace dflop
