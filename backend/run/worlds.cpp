#include "backend/run/worlds.hpp"

#include <algorithm>

#include "backend/devices.hpp"
#include "backend/host/ranks.hpp"
#include "backend/process/launch_environment.hpp"
#include "core/error.hpp"
#ifdef DFLOP_HAVE_CUDA
#include "backend/cuda/world.hpp"
#endif
#ifdef DFLOP_HAVE_NCCL
#include "backend/nccl/world.hpp"
#endif

namespace dflop {
namespace {

std::unique_ptr<World> make_cuda_world(int ranks, const WorldOptions& options) {
#ifdef DFLOP_HAVE_CUDA
  return make_cuda_ranks(ranks, {options.timeout, options.memory, options.partition});
#else
  static_cast<void>(ranks);
  static_cast<void>(options);
  throw Error(ErrorKind::internal, "a GPU was found by a build without CUDA");
#endif
}

/// The environment comes first: without it nothing else matters.
std::unique_ptr<World> make_process_world(int ranks, const WorldOptions& options) {
  const LaunchEnvironment launch = read_launch_environment(process_environment());
  if (launch.ranks != ranks) {
    throw Error(ErrorKind::input, "the plan is for " + std::to_string(ranks) + " ranks, " + launch.launcher +
                                      " has started " + std::to_string(launch.ranks) + " processes");
  }
#ifdef DFLOP_HAVE_NCCL
  return make_nccl_world(launch, {Seconds{300}, options.timeout, options.memory});
#else
  static_cast<void>(options);
  throw Error(ErrorKind::no_device, "this dflop was built without NCCL; build with -DDFLOP_NCCL=ON");
#endif
}

}  // namespace

const std::vector<std::string>& world_devices() {
  static const std::vector<std::string> names = {"host", "cuda", "nccl"};
  return names;
}

void require_device(const std::string& device) {
  if (device == "cuda") cuda_devices();  // throws where there is none, or no build for it
  if (device == "nccl") read_launch_environment(process_environment());
  const auto& devices = world_devices();
  if (std::find(devices.begin(), devices.end(), device) != devices.end()) return;
  std::string names;
  for (const std::string& name : world_devices()) names += (names.empty() ? "" : " or ") + name;
  throw Error(ErrorKind::usage, "option '--device': expected " + names + ", found '" + device + "'");
}

std::unique_ptr<World> make_world(const std::string& device, int ranks, const WorldOptions& options) {
  require_device(device);
  if (device == "cuda") return make_cuda_world(ranks, options);
  if (device == "nccl") return make_process_world(ranks, options);
  return make_host_ranks(ranks, {options.timeout, options.memory, options.cores});
}

}  // namespace dflop
