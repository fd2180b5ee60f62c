// These do what the PTX ISA says of the instructions in kernels/cuda/ptx.cuh. Shared addresses count from the
// block's dynamic memory on.
#pragma once

namespace dflop::emulation {

/// Does ldmatrix.m8n8.x4, with .trans where `transposed`.
void load_matrices(unsigned (&to)[4], unsigned row, bool transposed);
/// Does mma.m16n8k16 of bf16 with sums in f32.
void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1);

}  // namespace dflop::emulation
