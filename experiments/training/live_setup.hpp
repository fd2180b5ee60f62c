// What live runs of a plan begin with.
#pragma once

#include <memory>
#include <string>

#include "backend/world.hpp"
#include "core/plan.hpp"
#include "experiments/studies/options.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// What ranks run on.
struct LiveDevice {
  std::string name = "host";  ///< as make_world() takes it
  int cores = 0;              ///< of the host, on which ranks take turns; see Conditions::cores
  bool partition = false;     ///< of one GPU: each rank has multiprocessors of its own
};

/// A world of backend/run/worlds.hpp. With the host's the process keeps from then on what memory it frees.
/// @throws as make_world()
std::unique_ptr<World> make_live_world(const LiveDevice& device, int ranks);

/// --device, --partition and --dtype. `processes`: whether devices are offered whose ranks are processes.
void add_live_options(Options& options, bool processes);
/// One that is there. @throws Error (usage), (no_device)
LiveDevice read_live_device(const Values& values);
/// The same, one process running all ranks.
LiveDevice read_local_device(const Values& values);
/// @throws Error (usage)
DType read_dtype(const Values& values);

/// Of the host those processors that this process may use; 0 of other devices, whose ranks take no turns.
int default_cores(const LiveDevice& device);
/// --cores.
void add_cores_option(Options& options);
/// As default_cores() where the user says nothing; 0: ranks take no turns. @throws Error (usage)
int read_cores(const Values& values, const LiveDevice& device);

/// @throws Error (input), naming `where`, for tp that the model cannot be split over live, or more samples a
/// step than live runs take.
void require_trainable(const Plan& plan, const ModelSpec& model, const std::string& where);

/// --foreign-profile, which belongs to --profile. @throws Error (usage)
bool read_foreign_profile(const Values& values);

}  // namespace dflop
