// A HostWorld runs every rank as a thread of this process, with the host's cores and memory as the device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/host/machine.hpp"
#include "backend/world.hpp"
#include "core/units.hpp"

namespace dflop {

class HostRun;

struct HostDeviceOptions {
  int rank = 0;                                  ///< for messages
  std::optional<Bytes> memory;                   ///< max memory in use at a time; none: the machine's memory
  std::shared_ptr<HostBudget> budget = nullptr;  ///< shared by the ranks; null: no budget
  std::optional<int> processor = {};  ///< processor to which the rank's thread is pinned; none: unpinned
  /// The rank computes in this number of threads, the members of its Team. 0: it computes only in its own
  /// thread, with kernels that do not cut work into chunks.
  int team = 0;
  /// Processors to which the Team's members from the second on are pinned, as far as there are enough.
  std::vector<int> team_processors = {};
  int row_alignment = 1;  ///< result of the device's row_alignment()
};

/// Makes a device whose streams run all work in the calling thread, before the call returns. If the work
/// fails, the call throws. synchronize() does not wait. in_use() counts requested bytes.
///
/// Buffers may outlive the device. Streams accept only host events.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options);

/// A HostWorld is made once per run and shared by all rank threads. Communicators may outlive it.
///
/// The calls of its communicators return when their work is done. A send copies the data and does not wait
/// for its receiver; all other calls wait for their partners. Sums add the ranks' data in the group's order:
/// f32 and f64 in their own precision, bf16 in f32 and rounded once. So sums are bit-identical in every run.
///
/// A communicator's call throws an Error (internal) that ends the run for all ranks in these cases, in
/// addition to Communicator's own: if a receive and its send differ in size; if a rank and the first rank of
/// its group to enter a collective differ in operation, element or count. The message names both.
///
/// A rank that ends early, even by an exception, does not end the run: other ranks wait for it until the
/// timeout. Therefore, code that catches a rank's failure must call abort() with the reason before it
/// destroys the communicator.
///
/// If `device_cores` is above 1, each device has this number of cores, and its rank computes in one thread
/// per core. If two ranks share a device, the first gets the number of cores that encoder_quanta() returns,
/// and the second gets the rest. Results do not depend on the number of cores.
class HostWorld final : public World {
 public:
  /// Makes a world of `ranks` ranks.
  /// @throws Error (internal) if there are no ranks, for negative cores, for a device without cores, for
  /// shared devices that are not half as many as the ranks or have only one core, and for a timeout that is
  /// not positive or is over a year.
  explicit HostWorld(int ranks, const WorldOptions& options = {});

  std::string device_name() const override { return "host"; }
  int ranks() const override { return ranks_; }
  std::unique_ptr<Device> make_device(int rank) override;
  /// Makes a rank's communicator. The rank ends when the communicator is destroyed.
  /// @throws Error (internal) for a rank that does not exist or already has a communicator.
  std::unique_ptr<Communicator> make_communicator(int rank) override;
  int shared_devices() const override { return options_.shared_devices; }
  int quanta() const override { return options_.device_cores; }
  std::string part_of(int rank) const override;
  /// Returns the number of cores on which ranks take turns to compute or, if devices have several cores, the
  /// number of devices that compute at a time. Ranks that share devices take no turns.
  int cores() const override { return turns_; }
  /// Makes a rank's ComputeTurn. It must be made for all ranks of a tp group before any of them begins a
  /// turn.
  std::unique_ptr<ComputeTurn> make_turn(int rank, const RankGroup& tp) override;

 private:
  /// A CoreRange is a range of cores, counted over all devices.
  struct CoreRange {
    int first = 0;
    int count = 1;
  };
  CoreRange cores_of(int rank) const;

  int ranks_;
  WorldOptions options_;
  int turns_;
  std::shared_ptr<HostRun> run_;
  int places_ = 0;                      // number of devices whose ranks are pinned to processors
  std::vector<int> processors_;         // processors of the devices' cores; empty: threads are not pinned
  std::shared_ptr<HostBudget> budget_;  // memory of the machine, shared with other worlds
};

}  // namespace dflop
