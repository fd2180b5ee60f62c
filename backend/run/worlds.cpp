#include "backend/run/worlds.hpp"

#include "backend/gpus.hpp"
#include "backend/host/world.hpp"
#include "backend/process/process_world.hpp"
#include "core/error.hpp"
#ifdef DFLOP_HAVE_CUDA
#include "backend/cuda/world.hpp"
#endif
#ifdef DFLOP_HAVE_NCCL
#include "backend/nccl/world.hpp"
#endif

namespace dflop {
namespace {

std::unique_ptr<World> make_gpu_world([[maybe_unused]] int ranks,
                                      [[maybe_unused]] const WorldOptions& options) {
#ifdef DFLOP_HAVE_CUDA
  return make_cuda_world(ranks, options);
#else
  throw Error(ErrorKind::internal, "a GPU was found by a build without CUDA");
#endif
}

/// Reads the environment first, because nothing else matters without it.
std::unique_ptr<World> make_process_world(int ranks, [[maybe_unused]] const WorldOptions& options) {
  const LaunchEnvironment launch = read_launch_environment(process_environment());
  if (launch.ranks != ranks) {
    throw Error(ErrorKind::input, "the plan is for " + std::to_string(ranks) + " ranks, but " +
                                      launch.launcher + " started " + std::to_string(launch.ranks) +
                                      " processes");
  }
#ifdef DFLOP_HAVE_NCCL
  return make_nccl_world(launch, options);
#else
  throw Error(ErrorKind::no_device, "this dflop was built without NCCL; build with -DDFLOP_NCCL=ON");
#endif
}

constexpr WorldKind kWorldKinds[] = {
    {.name = "host",
     .what = "every rank is a thread",
     .on_host = true,
     .shares = true,
     .require = [] {},
     .make = [](int ranks, const WorldOptions& options) -> std::unique_ptr<World> {
       return std::make_unique<HostWorld>(ranks, options);
     }},
    {.name = "cuda",
     .what = "every rank is a thread, and all ranks share the first GPU",
     .partitions = true,
     .shares = true,
     .require = [] { cuda_device_count(); },  // creates no context on unused GPUs
     .make = make_gpu_world},
    {.name = "nccl",
     .what = "every rank is a process with a GPU of its own, started by torchrun, mpirun or srun",
     .processes = true,
     .require = [] { read_launch_environment(process_environment()); },
     .make = make_process_world},
};

}  // namespace

std::span<const WorldKind> world_kinds() {
  return kWorldKinds;
}

std::string world_names(const std::function<bool(const WorldKind&)>& holds) {
  std::string names;
  for (const WorldKind& kind : kWorldKinds) {
    if (holds(kind)) names += (names.empty() ? "" : " or ") + std::string(kind.name);
  }
  return names;
}

const WorldKind* find_world_kind(const std::string& device) {
  for (const WorldKind& kind : kWorldKinds) {
    if (kind.name == device) return &kind;
  }
  return nullptr;
}

const WorldKind& world_kind(const std::string& device) {
  if (const WorldKind* kind = find_world_kind(device)) return *kind;
  throw Error(ErrorKind::usage, "option '--device': expected " +
                                    world_names([](const WorldKind&) { return true; }) + ", found '" +
                                    device + "'");
}

std::unique_ptr<World> make_world(const std::string& device, int ranks, const WorldOptions& options) {
  const WorldKind& kind = world_kind(device);
  kind.require();
  return kind.make(ranks, options);
}

}  // namespace dflop
