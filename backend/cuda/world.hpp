// Ranks share one GPU in this World: every rank is a thread with a stream of its own. The header needs no
// CUDA; what it declares is there only in builds with it.
#pragma once

#include <memory>
#include <optional>

#include "backend/world.hpp"
#include "core/units.hpp"

namespace dflop {

struct CudaWorldOptions {
  Seconds timeout{60};               ///< that a rank's thread waits for another's
  std::optional<Bytes> memory = {};  ///< of each rank; none: what the GPU has
  /// Each rank has equally many multiprocessors, on which no other computes; else they share all of them.
  bool partition = false;
};

/// Makes a World whose threads meet on the host and then enter their work into their streams, which wait for
/// each other's events: a call returns when its partners have come to it, not when its work is done. A send
/// copies the data into memory of its own and waits for nobody. Sums are taken in the group's order, f32 and
/// f64 in their own precision, bf16 in f32 and rounded once, and so have the same bits in every run, those of
/// the host.
///
/// Beside what Communicator says, a receive with other bytes than were sent, and collectives that differ, end
/// the run as on the host (HostWorld).
/// @throws Error (no_device) without a GPU, Error (usage) for more than 64 ranks, Error (input) for a
/// partition with more ranks than parts.
std::unique_ptr<World> make_cuda_world(int ranks, const CudaWorldOptions& options = {});

}  // namespace dflop
