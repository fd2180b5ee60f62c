// This file makes the operations on the host: the reference for all other devices, and what trains small
// models on CPU cores.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/kernels.hpp"

namespace dflop {

/// A HostTarget is what the operations are compiled for: any x86-64 (or another processor), or AVX2 with
/// fused multiply-add. Results differ by rounding.
enum class HostTarget : std::uint8_t { portable, avx2 };

/// Returns the fastest that this processor has.
HostTarget fastest_host_target();

/// Makes kernels on memory of the host. A call runs at once in the calling thread and is done when it
/// returns. The same calls on memory aligned to 64 bytes give the same bytes; elsewhere sums begin at the
/// next whole vector. bf16 is computed in f32 and rounded, operation by operation, and so takes longer than
/// f32.
/// @throws Error(no_device) for a target that this processor has not.
std::unique_ptr<Kernels> make_host_kernels(DType dtype, HostTarget target = fastest_host_target());

}  // namespace dflop
