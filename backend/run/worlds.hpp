// What carries the ranks of a live run, by the name of its device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/world.hpp"
#include "core/units.hpp"

namespace dflop {

/// "host": every rank is a thread; "cuda": and all share the first GPU that the process sees; "nccl": every
/// rank is a process with a GPU of its own, started by torchrun, mpirun or srun
/// (backend/process/launch_environment.hpp).
const std::vector<std::string>& world_devices();

struct WorldOptions {
  Seconds timeout{60};          ///< that a rank waits for another
  std::optional<Bytes> memory;  ///< of each rank; none: what the device gives
  int cores = 0;                ///< of the host, that compute at a time; 0: every rank when it likes
  bool partition = false;       ///< of "cuda": each rank has as many multiprocessors of its own
};

/// To be found out before anything else is done. @throws as make_world() for names and devices
void require_device(const std::string& device);

/// @throws Error (usage) for another name than those, more ranks than the device can run, or a process that
/// was not started by a launcher; Error (input) where that has started other than so many; Error (no_device)
/// saying whether the build, the driver or the device is missing.
std::unique_ptr<World> make_world(const std::string& device, int ranks, const WorldOptions& options = {});

}  // namespace dflop
