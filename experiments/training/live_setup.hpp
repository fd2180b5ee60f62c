// This file sets up live runs of a plan: the device, and the profile for predictions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/world.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A LiveDevice is the device that ranks run on.
struct LiveDevice {
  std::string name = "host";        ///< device kind, as make_world() takes it
  int cores = 0;                    ///< host only: the cores on which ranks take turns; see Conditions::cores
  bool partition = false;           ///< only for one GPU: each rank has its own multiprocessors
  int device_cores = 1;             ///< host only: cores of each device; see WorldOptions::device_cores
  AttentionOptions attention = {};  ///< GPUs only
};

/// Makes a world (backend/run/worlds.hpp) with one device per rank. On the host, from then on the process
/// keeps freed memory for reuse.
/// @throws what make_world() throws
std::unique_ptr<World> make_live_world(const LiveDevice& device, int ranks);
/// Makes a world with two ranks on each device. The first rank of a device gets the fraction `share` of it. A
/// rank waits at most `timeout` for another rank.
/// @throws Error (input) for a device that ranks cannot share; what make_world() throws
std::unique_ptr<World> make_shared_world(const LiveDevice& device, int devices, double share,
                                         Seconds timeout);
/// Returns the time that ranks may wait for each other during a profile measurement with this time budget. A
/// rank may be busy for a part of the budget while another waits.
Seconds profile_timeout(Seconds budget);
/// Checks that a plan's ranks can run on this device: the ranks of a shared plan need a device that can be
/// shared. @throws Error (input)
void require_device(const LiveDevice& device, const Plan& plan);
/// Makes the world for a plan's ranks. @throws what make_live_world() for ranks and make_shared_world() throw
std::unique_ptr<World> make_live_world(const LiveDevice& device, const Plan& plan);

/// On the host, returns the number of processors that this process may use. Returns 0 for other devices,
/// whose ranks do not take turns.
int default_cores(const LiveDevice& device);
/// Returns the default max number of tokens in one measurement of a profile, if the microbatches are unknown.
/// It is small on a host, where many tokens take long, and typical of a GPU's microbatches on a GPU.
std::int64_t usual_most_tokens(const LiveDevice& device);

/// Checks that a plan can be trained.
/// @throws Error (input), naming `where`, for a tp over which a live run cannot split the model, or for more
/// samples per step than live runs support; what require_live() throws
void require_trainable(const Plan& plan, const ModelSpec& model, const std::string& where);

/// Checks that a model can run live in these modes.
/// @throws Error (usage) for a tp that cannot split the model's parts; what require_live() throws
void require_tp_modes(const ModelSpec& model, const std::vector<TpMode>& modes);

/// A ProfileUse describes the live run that a profile should predict.
struct ProfileUse {
  const ModelSpec& model;
  const World& world;
  DType dtype;
  bool elsewhere = false;  ///< whether the profile may have been measured on another machine
};

/// Checks that a profile is for the device and model. `path` names the profile in errors.
/// @throws Error (input) for a profile of another device, processor, driver, precision or model.
void require_measured(const ProfileTables& profile, const std::string& path, const ProfileUse& use);

/// Like require_measured(), but also checks that the profile has the tables that the plan's stages need.
/// @throws Error (input) for a profile without these tables; what require_measured() throws
void require_profile(const ProfileTables& profile, const std::string& path, const Plan& plan,
                     const ProfileUse& use);

/// Reads a profile; null if there is no path. @throws what parse_profile_tables() and require_profile() throw
std::shared_ptr<const ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                               const Plan& plan, const ProfileUse& use);

/// Returns the fraction of the program's compute instructions that are larger than all measurements of the
/// profile.
double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program);

}  // namespace dflop
