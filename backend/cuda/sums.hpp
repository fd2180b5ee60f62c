// Sums over the ranks of a collective are taken here on one GPU. The header needs no CUDA.
#pragma once

#include <cstddef>

#include "backend/host/thread_communicator.hpp"

namespace dflop {

/// A sum has at most so many inputs and outputs.
inline constexpr int kMostCudaSummands = 64;

/// Does ThreadCommunicator::add_up() for memory of the current device, in order on `stream`, a cudaStream_t,
/// with the bits of the host but where NaN meet. @throws Error (internal)
void add_up_on_gpu(const HostSum& sum, std::size_t begin, std::size_t end, void* stream, int multiprocessors);

}  // namespace dflop
