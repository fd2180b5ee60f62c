// These functions emulate the instructions in kernels/cuda/ptx.cuh according to the PTX ISA. Shared addresses
// are offsets into the block's dynamic shared memory.
#pragma once

namespace dflop::emulation {

/// Emulates ldmatrix.m8n8.x4, with .trans if `transposed`.
void load_matrices(unsigned (&to)[4], unsigned row, bool transposed);
/// Emulates mma.m16n8k16 for bf16 with sums in f32.
void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1);

}  // namespace dflop::emulation
