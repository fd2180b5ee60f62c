// make_nccl_world() makes a World in which each process has one GPU and processes communicate through NCCL.
// This header needs neither CUDA nor NCCL, but its function exists only in builds with both.
#pragma once

#include <memory>

#include "backend/process/process_world.hpp"

namespace dflop {

/// Makes the World of this process. It uses the GPU whose index is the local rank or, if only one GPU is
/// visible, that GPU. All processes must join within 30 minutes.
/// @throws Error (no_device) if the driver, that GPU or NCCL is missing; what Rendezvous's constructor
/// throws
std::unique_ptr<World> make_nccl_world(const LaunchEnvironment& launch, const WorldOptions& options);

}  // namespace dflop
