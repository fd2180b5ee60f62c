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
  std::string name = "host";        ///< as in make_world()
  int cores = 0;                    ///< host only: the cores on which ranks take turns; see Conditions::cores
  bool partition = false;           ///< one GPU only: each rank has its own multiprocessors
  int device_cores = 1;             ///< host only: cores of each device; see WorldOptions::device_cores
  AttentionOptions attention = {};  ///< GPUs only
};

/// Makes a world of backend/run/worlds.hpp with a device for each rank. On the host, the process keeps freed
/// memory for reuse from then on.
/// @throws as make_world()
std::unique_ptr<World> make_live_world(const LiveDevice& device, int ranks);
/// Makes a world with two ranks on each device; the first of them has `share`. A rank waits for another for
/// at most `timeout`.
/// @throws Error (input) for a device that ranks cannot share, and as make_world()
std::unique_ptr<World> make_shared_world(const LiveDevice& device, int devices, double share,
                                         Seconds timeout);
/// Returns how long ranks may wait for each other while a profile is measured within a budget, because
/// another rank may be busy for a part of the budget.
Seconds profile_timeout(Seconds budget);
/// Checks that a plan's ranks can run on such devices. @throws Error (input)
void require_device(const LiveDevice& device, const Plan& plan);
/// Makes the world for a plan's ranks. @throws as the functions above
std::unique_ptr<World> make_live_world(const LiveDevice& device, const Plan& plan);

/// Returns the number of processors that this process may use, for the host; 0 for other devices, whose ranks
/// do not take turns.
int default_cores(const LiveDevice& device);
/// Returns the default max number of tokens in the points of a profile, if the microbatches are unknown: few
/// on a host, where many tokens take long, and on a GPU as many as its microbatches have.
std::int64_t usual_most_tokens(const LiveDevice& device);

/// Checks that a plan can be trained.
/// @throws Error (input), naming `where`, for a tp over which a live run cannot split the model, for more
/// samples per step than live runs support, or as require_live().
void require_trainable(const Plan& plan, const ModelSpec& model, const std::string& where);

/// Checks that a model can run live in these modes.
/// @throws Error (usage) for a tp that cannot split the model's parts, else as require_live()
void require_tp_modes(const ModelSpec& model, const std::vector<TpMode>& modes);

/// A ProfileUse is the live run that a profile predicts.
struct ProfileUse {
  const ModelSpec& model;
  const World& world;
  DType dtype;
  bool elsewhere = false;  ///< whether the profile may have been measured on another machine
};

/// Checks that a profile is for the device and model. `path` names the profile in errors.
/// @throws Error (input) for a profile of another device, processor, driver, precision or model.
void require_measured(const ProfileTables& profile, const std::string& path, const ProfileUse& use);

/// Like require_measured(), and also checks that the profile has the tables that the plan's stages need.
/// @throws Error (input) as require_measured(), and for a profile without them.
void require_profile(const ProfileTables& profile, const std::string& path, const Plan& plan,
                     const ProfileUse& use);

/// Reads a profile; null without a path. @throws Error (input) as require_profile()
std::shared_ptr<const ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                               const Plan& plan, const ProfileUse& use);

/// Returns the fraction of the program's compute instructions that exceed the measured sizes.
double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program);

}  // namespace dflop
