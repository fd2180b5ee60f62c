// A World provides devices and communicators for the ranks of a live run. Ranks are threads on the host,
// streams of one GPU, or one GPU each. Every rank of a process has its own thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/device.hpp"
#include "core/units.hpp"
#include "kernels/attention_options.hpp"

namespace dflop {

/// A ComputeTurn makes ranks take turns computing if a device has fewer cores than ranks. Without turns,
/// ranks that compute at the same time would slow each other down, and measured durations would depend on
/// the number of such ranks. All ranks of a tp group share a turn.
struct ComputeTurn {
  /// Waits for the turn and returns the time at which this rank got its cores, on the clock of
  /// DeviceEvent::time(). The delay from that time until this rank's thread wakes up counts toward the
  /// rank's own time.
  /// @throws what Communicator's calls throw
  std::function<Nanoseconds()> begin;
  /// Ends the turn. Call it before waiting for another tp group.
  std::function<void()> end;
};

/// WorldOptions holds the options of all kinds of devices. A World ignores the options for other kinds.
struct WorldOptions {
  Seconds timeout{60};               ///< max time that a rank waits for another; then the run fails
  std::optional<Bytes> memory = {};  ///< memory limit of each rank; none: the device's memory
  int cores = 0;                     ///< host only: cores that compute at a time; 0: ranks take no turns
  bool partition = false;            ///< GPU only: each rank gets its own multiprocessors
  int device_cores = 1;              ///< host only: cores of each device; its ranks use all of them
  /// Number of devices that two ranks share each: rank r below this number shares a device with rank r +
  /// shared_devices. 0: each rank has its own device or, with `partition`, an equal part of the GPU.
  int shared_devices = 0;
  double first_share = 0;           ///< part of a shared device that its first rank gets: the encoder's share
  AttentionOptions attention = {};  ///< GPU only
  /// Host only: the value of Device::row_alignment(). On the host, padding does not speed up matrix
  /// products, and it changes the bits of their results because it changes the order of sums. Only tests set
  /// more than 1.
  int row_alignment = 1;
};

/// A World makes the devices and communicators for the ranks of one live run, and exchanges bytes between the
/// run's processes.
class World {
 public:
  virtual ~World() = default;
  virtual std::string device_name() const = 0;  ///< "host", "NVIDIA H200"
  /// Returns the versions of the driver and libraries that affect the device's speed, such as "CUDA driver
  /// 13.0, runtime 13.0"; empty if there are none.
  virtual std::string software() const { return {}; }
  virtual int ranks() const = 0;
  /// Returns WorldOptions::shared_devices: the number of devices that two ranks share, which is also the
  /// first rank that shares a device with an earlier one. 0: each rank has its own device.
  virtual int shared_devices() const { return 0; }
  /// Returns the number of quanta of a device (ProfileTables::quanta): the units, such as cores, in which
  /// ranks get parts of it. 0: ranks are not given parts of a device.
  virtual int quanta() const { return 0; }
  /// Returns the part of the device on which only this rank computes: "3 cores", "48 multiprocessors"; empty
  /// if the part is not fixed.
  virtual std::string part_of([[maybe_unused]] int rank) const { return {}; }
  /// Returns the ranks that this process runs, in ascending order: all ranks if it is the only process.
  virtual std::vector<int> local_ranks() const { return consecutive_ranks(0, ranks()).ranks; }

  /// Makes a local rank's device. Call make_device() and make_communicator() once for each local rank.
  virtual std::unique_ptr<Device> make_device(int rank) = 0;
  virtual std::unique_ptr<Communicator> make_communicator(int rank) = 0;

  /// Returns the number of cores on which ranks take turns to compute; 0: ranks take no turns.
  virtual int cores() const { return 0; }
  /// Returns the functions that begin and end the turns of one local rank of the group `tp`, or null if
  /// ranks take no turns. Call it once for each rank.
  virtual std::unique_ptr<ComputeTurn> make_turn([[maybe_unused]] int rank,
                                                 [[maybe_unused]] const RankGroup& tp) {
    return nullptr;
  }

  /// Returns whether this process runs rank 0. Only that process prints, writes files and makes schedules.
  bool leads() const { return local_ranks().front() == 0; }

  /// In the leading process, returns the `bytes` of all processes, by rank; in other processes, returns an
  /// empty list. All processes must call gather() and broadcast() in the same order.
  /// @throws Aborted if the run has ended; Error (internal) on timeout
  virtual std::vector<std::string> gather(std::string bytes) { return {std::move(bytes)}; }
  /// Returns the leading process's `bytes` in every process. Other processes' `bytes` are ignored.
  virtual std::string broadcast(std::string bytes) { return bytes; }

  /// Returns the offset between clocks: this process's DeviceEvent::time() plus the offset is the time on the
  /// leading process's clock.
  virtual Nanoseconds clock_offset() { return Nanoseconds{0}; }

  /// Ends the run in all other processes, which get the reason.
  virtual void abort(const std::string& /*reason*/) {}
};

/// Runs `work` in all processes of a world. If it fails in one process, the call fails in all of them, so no
/// process waits for another. All processes must call it.
/// @throws the exception of `work` if it failed in this process; otherwise an Error with the kind and
/// message of the failing process whose rank is lowest
void do_in_all(World& world, const std::function<void()>& work);

/// A LocalRank holds the device, communicator, stream and kernels of a rank in this process.
struct LocalRank {
  LocalRank(World& world, int rank, DType dtype);

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<Kernels> kernels;
};

/// A RankWork holds the functions that each rank runs in its thread.
struct RankWork {
  std::function<void(std::size_t rank)> prepare;
  std::function<void(std::size_t rank)> run;  ///< starts when `prepare` has returned or failed on all ranks
  /// Called in the thread of a rank that fails, so that other ranks stop waiting for it. It is not called if
  /// the rank throws Aborted, which reports another rank's failure.
  std::function<void(std::size_t rank, const std::string& message)> on_failure;
};

/// Runs `work` for ranks 0 to `count` - 1, each in a thread, and returns when all threads have ended.
/// @throws the exception of the first rank that failed by itself.
void run_in_threads(std::size_t count, const RankWork& work);

}  // namespace dflop
