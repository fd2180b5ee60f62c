// The host's World runs every rank as a thread of this process. The host is a device, too.
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
  int rank = 0;                 ///< for messages
  std::optional<Bytes> memory;  ///< the most that may be in use at once; none: what the machine gives
  std::shared_ptr<HostBudget> budget = nullptr;  ///< that ranks share; null: none
  std::optional<int> processor = {};             ///< on which the rank's thread stays; none: any
  /// The rank computes in so many threads, the members of its Team; 0: in its own, with kernels that are not
  /// cut into chunks. Members stay on the processors, from the second on, as far as there are some.
  int team = 0;
  std::vector<int> team_processors = {};
  int row_alignment = 1;  ///< as Device::row_alignment()
};

/// Makes a device whose streams run what is put into them at once, in the calling thread: a rank is one
/// thread and has nothing that could overlap, and so order is kept without queues. A failure is thrown by the
/// call that fails, and synchronize() has nothing to wait for. Bytes in use are those that were asked for.
///
/// Buffers may outlive the device. Streams take events of the host only.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options);

/// A HostWorld is made once a run, and shared by its rank threads. Communicators may outlive it.
///
/// Calls of its communicators return when their work is done, as the streams of a host device do: a send
/// copies the data and does not wait for its receiver, everything else waits for its partners. Sums are taken
/// in the group's order, f32 and f64 in their own precision, bf16 in f32 and rounded once, and so have the
/// same bits in every run.
///
/// Beside what Communicator says: a receive with other bytes than were sent, or a collective with another
/// operation, element or count than its group's first rank, is an Error (internal) that names both and ends
/// the run for all. So does a rank that waits longer than the timeout.
///
/// A rank that ends early, by an exception too, does not end the run: who waits for it does so until the
/// timeout. So whoever catches a rank's failure says why by abort() before its communicator goes.
///
/// With `device_cores` above 1 each device has so many cores, and its rank computes in as many threads. Two
/// ranks that share a device have the cores that encoder_quanta() gives the first of them, and the rest; what
/// they compute does not depend on how many these are.
class HostWorld final : public World {
 public:
  /// Makes a world of so many ranks.
  /// @throws Error (internal) without ranks, for negative cores, no cores of a device, shared devices that
  /// are not half as many as the ranks or have one core, or for a timeout that is not positive or over a
  /// year.
  explicit HostWorld(int ranks, const WorldOptions& options = {});

  std::string device_name() const override { return "host"; }
  int ranks() const override { return ranks_; }
  std::unique_ptr<Device> make_device(int rank) override;
  /// Makes a rank's communicator. The rank has ended when it is destroyed.
  /// @throws Error (internal) for a rank that is not there or has one already.
  std::unique_ptr<Communicator> make_communicator(int rank) override;
  int shared_devices() const override { return options_.shared_devices; }
  int quanta() const override { return options_.device_cores; }
  std::string part_of(int rank) const override;
  /// Returns on how many cores ranks take turns, or of devices of several cores how many devices compute at a
  /// time. Ranks that share devices take no turns.
  int cores() const override { return turns_; }
  /// Makes a rank's turns. They are asked for by all ranks of a tp group before any of them begins a turn.
  std::unique_ptr<ComputeTurn> make_turn(int rank, const RankGroup& tp) override;

 private:
  /// CoreRange are cores of all devices, one device after the other.
  struct CoreRange {
    int first = 0;
    int count = 1;
  };
  CoreRange cores_of(int rank) const;

  int ranks_;
  WorldOptions options_;
  int turns_;
  std::shared_ptr<HostRun> run_;
  int places_ = 0;                      // devices for which there are processors, on which their ranks stay
  std::vector<int> processors_;         // of the devices' cores; none: threads go where they like
  std::shared_ptr<HostBudget> budget_;  // of the machine, shared with the worlds that are there beside it
};

}  // namespace dflop
