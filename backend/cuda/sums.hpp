// Sums over the ranks of a collective on one GPU. The header needs no CUDA.
#pragma once

#include <cstddef>

#include "backend/host/sums.hpp"

namespace dflop {

/// That many inputs and outputs at most.
inline constexpr int kMostCudaSummands = 64;

/// add_up() of host_sums.hpp for memory of the current device, in order on `stream`, a cudaStream_t; with the
/// same bits but where NaN meet. @throws Error (internal)
void add_up_on_gpu(const HostSum& sum, std::size_t begin, std::size_t end, void* stream, int multiprocessors);

}  // namespace dflop
