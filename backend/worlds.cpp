#include "backend/worlds.hpp"

#include "backend/devices.hpp"
#include "backend/host_ranks.hpp"
#include "core/error.hpp"
#ifdef DFLOP_HAVE_CUDA
#include "backend/cuda_world.hpp"
#endif

namespace dflop {
namespace {

std::unique_ptr<World> make_cuda_world(int ranks, const WorldOptions& options) {
  cuda_devices();  // throws where there is none, or no build for it
#ifdef DFLOP_HAVE_CUDA
  return make_cuda_ranks(ranks, {options.timeout, options.memory, {}});
#else
  static_cast<void>(ranks);
  static_cast<void>(options);
  throw Error(ErrorKind::internal, "a GPU was found by a build without CUDA");
#endif
}

}  // namespace

const std::vector<std::string>& world_devices() {
  static const std::vector<std::string> names = {"host", "cuda"};
  return names;
}

std::unique_ptr<World> make_world(const std::string& device, int ranks, const WorldOptions& options) {
  if (device == "host") return make_host_ranks(ranks, {options.timeout, options.memory, options.cores});
  if (device == "cuda") return make_cuda_world(ranks, options);
  std::string names;
  for (const std::string& name : world_devices()) names += (names.empty() ? "" : " or ") + name;
  throw Error(ErrorKind::usage, "option '--device': expected " + names + ", found '" + device + "'");
}

}  // namespace dflop
