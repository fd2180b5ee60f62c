// This file makes the operations on the host: the reference for all other devices, and what trains small
// models on CPU cores.
#pragma once

#include <cstdint>
#include <memory>

#include "core/names.hpp"
#include "kernels/host/team.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A HostTarget is what the operations are compiled for: any x86-64 (or another processor), AVX2 or AVX-512,
/// both with fused multiply-add. Results differ by rounding.
enum class HostTarget : std::uint8_t { portable, avx2, avx512 };

template <>
inline constexpr NameTable<HostTarget, 3> kNames<HostTarget> = {
    {{HostTarget::portable, "portable"}, {HostTarget::avx2, "avx2"}, {HostTarget::avx512, "avx512"}}};

/// Returns whether this processor has the target, and this was built with it.
bool has_host_target(HostTarget target);

/// Returns AVX2 where this processor has it, else the portable one. AVX-512 is no faster for all that a step
/// does; where it is, it is a variant of AVX2's operations.
HostTarget fastest_host_target();

/// Makes kernels on memory of the host. A call runs at once in the calling thread and is done when it
/// returns. The same calls on memory aligned to 64 bytes give the same bytes; elsewhere sums begin at the
/// next whole vector. bf16 is computed in f32 and rounded, operation by operation, and so takes longer than
/// f32.
///
/// Linear layers, activations and attention have variants: those of the target itself, of all wider targets
/// that the processor has, and of oneDNN and OpenBLAS where there are their libraries.
///
/// With a team, which outlives the kernels, operations are cut into chunks that its threads compute. Chunks
/// follow from shapes alone: results differ by rounding from those without a team, but not between teams.
/// @throws Error(no_device) for a target that this processor has not.
std::unique_ptr<Kernels> make_host_kernels(DType dtype, HostTarget target = fastest_host_target(),
                                           Team* team = nullptr);

}  // namespace dflop
