// world_kinds() returns the table of devices for live runs, by the names of --device. make_world() makes the
// World of a device.
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
  std::string_view what;    ///< how ranks run on it, for help texts; continues the texts of the previous rows
  bool on_host = false;     ///< ranks compute on the host's cores and can take turns on them (--cores)
  bool partitions = false;  ///< the device can be divided among ranks (--partition)
  bool shares = false;     ///< two ranks can share a device, each with its own part; needs --partition if the
                           ///< device has that
  bool processes = false;  ///< each rank is a process started by a launcher; else all are in this one
  /// Checks that the device is available. @throws Error (no_device), or (usage) without a launcher, that
  /// names the missing requirement.
  void (*require)();
  /// Makes the World of `ranks` ranks. @throws what make_world() throws
  std::unique_ptr<World> (*make)(int ranks, const WorldOptions& options);
};

/// Returns all devices, including unavailable ones, in the order of help texts.
std::span<const WorldKind> world_kinds();

/// Returns the names of the kinds for which holds() is true, formatted for errors: "host or cuda".
std::string world_names(const std::function<bool(const WorldKind&)>& holds);

/// Returns the kind with the name `device`, or null.
const WorldKind* find_world_kind(const std::string& device);

/// Returns the kind with the name `device`.
/// @throws Error (usage) that lists all kinds if there is none.
const WorldKind& world_kind(const std::string& device);

/// Makes the World of a device.
/// @throws Error (usage) for an unknown name, for more ranks than the device can run, or if the process was
/// not started by a launcher; Error (input) if the launcher started a different number of ranks; Error
/// (no_device) that says whether the build, the driver or the device is missing.
std::unique_ptr<World> make_world(const std::string& device, int ranks, const WorldOptions& options = {});

}  // namespace dflop
