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
  std::optional<Bytes> memory;                   ///< max memory in use at once; nullopt: the machine's memory
  std::shared_ptr<HostBudget> budget = nullptr;  ///< shared by the ranks; null: no budget
  std::optional<int> processor = {};             ///< to which the rank's thread is pinned; nullopt: unpinned
  /// The rank computes in this number of threads, the members of its Team. 0: it computes only in its own
  /// thread, with kernels that do not cut work into chunks. Members from the second on are pinned to
  /// team_processors, as long as there are processors left.
  int team = 0;
  std::vector<int> team_processors = {};
  int row_alignment = 1;  ///< result of the device's row_alignment()
};

/// Makes a device whose streams run all work at once, in the calling thread. A rank is one thread and has
/// nothing to overlap, so it needs no queues. A failing call itself throws, and synchronize() has nothing to
/// wait for. in_use() counts requested bytes.
///
/// Buffers may outlive the device. Streams accept only host events.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options);

/// A HostWorld is made once per run and shared by its rank threads. Communicators may outlive it.
///
/// Its communicators' calls return when their work is done, like calls of a host device's streams. A send
/// copies the data and does not wait for its receiver; all other calls wait for their partners. Sums are
/// taken in the group's order, f32 and f64 in their own precision, bf16 in f32 and rounded once, so they have
/// the same bits in every run.
///
/// In addition to the errors of Communicator, two mistakes throw an Error (internal) that names both sides
/// and ends the run for all ranks: a receive whose size differs from the send's, and a collective whose
/// operation, element or count differs between ranks. A rank that waits longer than the timeout also ends the
/// run.
///
/// A rank that ends early, even by an exception, does not end the run: other ranks wait for it until the
/// timeout. So code that catches a rank's failure must call abort() with the reason before it destroys the
/// communicator.
///
/// With `device_cores` above 1, each device has that many cores, and its rank computes in as many threads. If
/// two ranks share a device, the first gets the cores that encoder_quanta() returns, and the second gets the
/// rest. Results do not depend on the number of cores.
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
  /// Returns the number of cores on which ranks take turns. If devices have several cores, returns the number
  /// of devices that compute at a time. Ranks that share devices take no turns.
  int cores() const override { return turns_; }
  /// Makes a rank's turns. All ranks of a tp group must call it before any of them begins a turn.
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
  std::vector<int> processors_;         // of the devices' cores; empty: threads are not pinned
  std::shared_ptr<HostBudget> budget_;  // of the machine, shared with other worlds
};

}  // namespace dflop
