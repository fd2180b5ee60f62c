// This table has the devices that a live run can be on, by the names of --device, and makes the World of
// each.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/world.hpp"

namespace dflop {

/// A WorldKind is one device of live runs. Options, help texts and errors of --device follow from the table
/// of them, world_kinds(): a device of your own is a row there and a wing of the backend.
struct WorldKind {
  std::string_view name;    ///< as --device has it
  std::string_view what;    ///< what carries a rank, for help texts, after those of the rows before it
  bool on_host = false;     ///< ranks compute on the host's cores, on which they can take turns (--cores)
  bool partitions = false;  ///< it can be divided among ranks (--partition)
  bool shares =
      false;  ///< two ranks can share a device, each with a part of it; with --partition, if it has that
  bool processes = false;  ///< each rank is a process that a launcher has started; else all are of this one
  /// Finds out whether the device is there. @throws Error (no_device), or (usage) without a launcher, saying
  /// what is missing.
  void (*require)();
  /// Makes the World of so many ranks. @throws as make_world()
  std::unique_ptr<World> (*make)(int ranks, const WorldOptions& options);
};

/// Returns all devices, those that are not there too, in the order in which help texts name them.
std::span<const WorldKind> world_kinds();

/// Returns the names of the kinds that `holds` chooses, as errors have them: "host or cuda".
std::string world_names(const std::function<bool(const WorldKind&)>& holds);

/// Returns the kind of that name; null where there is none.
const WorldKind* find_world_kind(const std::string& device);

/// Returns the kind of that name.
/// @throws Error (usage) that names all kinds where there is none.
const WorldKind& world_kind(const std::string& device);

/// Makes the World of a device. @throws Error (usage) for a name that is no kind's, more ranks than the
/// device can run, or a process that was not started by a launcher; Error (input) where that has started
/// other than so many; Error (no_device) saying whether the build, the driver or the device is missing.
std::unique_ptr<World> make_world(const std::string& device, int ranks, const WorldOptions& options = {});

}  // namespace dflop
