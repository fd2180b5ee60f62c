// world_kinds() is the table of devices for live runs, whose names are the values of --device. make_world()
// makes the World of a device.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/world.hpp"

namespace dflop {

/// A WorldKind describes one device for live runs. Options, help texts and errors of --device come from the
/// table world_kinds(). To add a device, add a row there and its implementation to the backend.
struct WorldKind {
  std::string_view name;    ///< the value of --device
  std::string_view what;    ///< how ranks run on the device, for help texts: "every rank is a thread"
  bool on_host = false;     ///< ranks compute on the host's cores and can take turns on them (--cores)
  bool partitions = false;  ///< the device can be divided among ranks (--partition)
  bool shares = false;      ///< two ranks can share a device; if `partitions`, only with --partition
  bool processes = false;   ///< a launcher starts each rank as a process; false: ranks are threads
  /// Checks that the device is available.
  /// @throws Error (no_device) that names what is missing, or Error (usage) if the process was not started
  /// by a launcher but must be
  void (*require)();
  /// Makes a World of `ranks` ranks on this device. @throws what make_world() throws
  std::unique_ptr<World> (*make)(int ranks, const WorldOptions& options);
};

/// Returns all devices, including unavailable ones, in the order of help texts.
std::span<const WorldKind> world_kinds();

/// Returns the names of the devices for which holds() is true, formatted for errors: "host or cuda".
std::string world_names(const std::function<bool(const WorldKind&)>& holds);

/// Returns the WorldKind with the name `device`; null if there is none.
const WorldKind* find_world_kind(const std::string& device);

/// Returns the WorldKind with the name `device`.
/// @throws Error (usage) that lists all names if there is none
const WorldKind& world_kind(const std::string& device);

/// Makes a World of `ranks` ranks on the device with the name `device`.
/// @throws Error (usage) for an unknown name, for more ranks than the device can run, or if the process was
/// not started by a launcher; Error (input) if the launcher started a different number of processes; Error
/// (no_device) that says whether the build, the driver or the device is missing.
std::unique_ptr<World> make_world(const std::string& device, int ranks, const WorldOptions& options = {});

}  // namespace dflop
