// Live runs of a plan begin with this setup: the device, and the profile with which they are predicted.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/world.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "experiments/studies/options.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A LiveDevice is what ranks run on.
struct LiveDevice {
  std::string name = "host";        ///< as make_world() takes it
  int cores = 0;                    ///< of the host, on which ranks take turns; see Conditions::cores
  bool partition = false;           ///< of one GPU: each rank has multiprocessors of its own
  int device_cores = 1;             ///< of the host: of each device; see WorldOptions::device_cores
  AttentionOptions attention = {};  ///< of GPUs
};

/// Makes a world of backend/run/worlds.hpp whose ranks have a device each. With the host's the process keeps
/// from then on what memory it frees.
/// @throws as make_world()
std::unique_ptr<World> make_live_world(const LiveDevice& device, int ranks);
/// Makes a world in which two ranks are on each device, of which the first of them has `share`. A rank waits
/// for another for `timeout` at most.
/// @throws Error (input) for a device that ranks cannot share, and as make_world()
std::unique_ptr<World> make_shared_world(const LiveDevice& device, int devices, double share,
                                         Seconds timeout);
/// Returns for how long ranks may wait for each other where a profile is measured within a budget: a
/// neighbour's rest for a part of it.
Seconds profile_timeout(Seconds budget);
/// Checks that a plan's ranks can be on such devices. @throws Error (input)
void require_device(const LiveDevice& device, const Plan& plan);
/// Makes the world of a plan's ranks. @throws as these
std::unique_ptr<World> make_live_world(const LiveDevice& device, const Plan& plan);

/// Adds --device, --partition, --dtype, --attention-sums and --attention-workspace. `processes`: whether
/// devices are offered whose ranks are processes.
void add_live_options(Options& options, bool processes);
/// Reads a device that is there. @throws Error (usage), (no_device)
LiveDevice read_live_device(const Values& values);
/// Reads a device on which one process runs all ranks, like read_live_device().
LiveDevice read_local_device(const Values& values);
/// Reads --attention-sums, whatever the device.
AttentionSums read_attention_sums(const Values& values);
/// Reads --dtype. @throws Error (usage)
DType read_dtype(const Values& values);

/// Returns, for the host, how many processors this process may use; 0 of other devices, whose ranks take no
/// turns.
int default_cores(const LiveDevice& device);
/// Returns how many tokens the points of a profile have at most where nothing is known of microbatches: few
/// on a host, where many take long, and on a GPU as many as its microbatches have.
std::int64_t usual_most_tokens(const LiveDevice& device);
/// Adds --cores and --device-cores.
void add_cores_option(Options& options);
/// Reads --cores: default_cores() where the user says nothing; 0: ranks take no turns. @throws Error (usage)
int read_cores(const Values& values, const LiveDevice& device);
/// Adds --device-cores alone.
void add_device_cores_option(Options& options);
/// Reads --device-cores. @throws Error (usage) with a device that is not the host
int read_device_cores(const Values& values, const LiveDevice& device);

/// Checks that a plan can be trained.
/// @throws Error (input), naming `where`, for tp that the model cannot be split over live, more samples a
/// step than live runs take, or as require_live().
void require_trainable(const Plan& plan, const ModelSpec& model, const std::string& where);

/// Reads --foreign-profile, which belongs to --profile. @throws Error (usage)
bool read_foreign_profile(const Values& values);

/// Checks that a profile is of the device and model. `path` is the profile's place for errors. `elsewhere`:
/// it may have been measured on another machine.
/// @throws Error (input) for a profile of another device, processor, driver, precision or model.
void require_measured(const ProfileTables& profile, const std::string& path, const ModelSpec& model,
                      const World& world, DType dtype, bool elsewhere);

/// Checks what require_measured() does, and that the profile has the tables that the plan's stages need.
/// @throws Error (input) as require_measured(), and for a profile without them.
void require_profile(const ProfileTables& profile, const std::string& path, const ModelSpec& model,
                     const Plan& plan, const World& world, DType dtype, bool elsewhere);

/// Reads a profile; nothing without a path. @throws Error (input) as require_profile()
std::shared_ptr<const ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                               const ModelSpec& model, const Plan& plan,
                                                               const World& world, DType dtype,
                                                               bool elsewhere);

/// Returns the part of the program's compute instructions that are larger than what was measured.
double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program);

}  // namespace dflop
