// make_host_kernels() makes the kernels that run on CPU cores. They are the reference for all other devices
// and train small models.
#pragma once

#include <cstdint>
#include <memory>

#include "core/names.hpp"
#include "kernels/host/team.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A HostTarget is a processor type for which the operations are compiled: any processor, x86-64 with AVX2
/// and fused multiply-add, or x86-64 with AVX-512. The results of different targets differ by rounding.
enum class HostTarget : std::uint8_t { portable, avx2, avx512 };

template <>
inline constexpr NameTable<HostTarget, 3> kNames<HostTarget> = {
    {{HostTarget::portable, "portable"}, {HostTarget::avx2, "avx2"}, {HostTarget::avx512, "avx512"}}};

/// Returns whether this processor supports the target and the build includes it.
bool has_host_target(HostTarget target);

/// Returns AVX2 if this processor supports it, else the portable target. AVX-512 is not faster for a whole
/// step. Where it is faster for an operation, the AVX2 kernels have it as a variant.
HostTarget fastest_host_target();

/// Makes kernels that work on host memory. A call runs in the calling thread and is done when it returns.
/// Repeated calls are bit-identical if their memory is aligned to 64 bytes; with other alignments, sums begin
/// at a different element. bf16 operations compute in f32 and round the result, so they are slower than f32
/// operations.
///
/// Linear layers, activations and attention have variants: of the target itself, of all wider targets that
/// the processor supports and, for linear layers in f32, of oneDNN if its library is installed.
///
/// With a team, which must outlive the kernels, operations are cut into chunks for its threads. Chunks depend
/// only on shapes, so results are the same for all teams; they differ by rounding from results without a
/// team.
/// @throws Error(no_device) for a target that this processor does not support.
std::unique_ptr<Kernels> make_host_kernels(DType dtype, HostTarget target = fastest_host_target(),
                                           Team* team = nullptr);

}  // namespace dflop
