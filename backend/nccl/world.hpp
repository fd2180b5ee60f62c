// The processes of this World have a GPU each and communicate through NCCL. The header needs neither CUDA nor
// NCCL; what it declares is there only in builds with both.
#pragma once

#include <memory>

#include "backend/process/process_world.hpp"

namespace dflop {

/// Makes the World of this process, which uses the GPU of its local rank, or its only one; all
/// processes must come within five minutes.
/// @throws Error (no_device) without a driver, that GPU or NCCL; as Rendezvous.
std::unique_ptr<World> make_nccl_world(const LaunchEnvironment& launch, const WorldOptions& options);

}  // namespace dflop
