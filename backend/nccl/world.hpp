// The processes of this World have a GPU each and communicate through NCCL. The header needs neither CUDA nor
// NCCL; what it declares is there only in builds with both.
#pragma once

#include <memory>
#include <optional>

#include "backend/process/launch_environment.hpp"
#include "backend/world.hpp"
#include "core/units.hpp"

namespace dflop {

struct NcclWorldOptions {
  Seconds meeting{300};         ///< until all processes have come
  Seconds timeout{60};          ///< that a rank waits for another
  std::optional<Bytes> memory;  ///< of each rank; none: what its GPU has
};

/// Makes the World of this process, which uses the GPU of its local rank, or its only one.
/// @throws Error (no_device) without a driver, that GPU or NCCL; as Rendezvous.
std::unique_ptr<World> make_nccl_world(const LaunchEnvironment& launch, const NcclWorldOptions& options);

}  // namespace dflop
