// A World carries the ranks of a live run: threads of the host, streams of one GPU, or a GPU each. The ranks
// of one process have a thread each.
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

/// A ComputeTurn gives a rank its turns to compute where a device has fewer cores than ranks. Ranks that
/// outnumber the cores would slow each other down while they compute, and the durations of their instructions
/// would say how many others ran beside them. A turn is that of a tp group, whose ranks begin and end it
/// together.
struct ComputeTurn {
  /// Waits for the turn, and returns since when the cores are this rank's, on the clock of
  /// DeviceEvent::time(): that they come to it, as when its thread is woken, is its time and nobody else's.
  /// @throws as Communicator's calls.
  std::function<Nanoseconds()> begin;
  /// Ends the turn. It is called before anything of another tp group is waited for.
  std::function<void()> end;
};

/// WorldOptions has the options of every device; a World reads its own and ignores the others.
struct WorldOptions {
  Seconds timeout{60};               ///< that a rank waits for another
  std::optional<Bytes> memory = {};  ///< of each rank; none: what the device gives
  int cores = 0;                     ///< of the host, that compute at a time; 0: every rank when it likes
  bool partition = false;            ///< of a GPU: each rank has multiprocessors of its own
  int device_cores = 1;              ///< of the host: cores of each device, on all of which its ranks compute
  /// Ranks from this one on are on the devices of those before, of which those before have this share: the
  /// encoder's of a shared plan. 0: each rank has a device, on a GPU one of as many equal parts.
  int shared_devices = 0;
  double first_share = 0;
  AttentionOptions attention = {};  ///< on GPUs
  /// Of the host, as Device::row_alignment(). Its products are no faster for padded rows, and are summed in
  /// other blocks then, which gives other bits; so only tests ask for more than 1.
  int row_alignment = 1;
};

/// A World makes what the ranks of one live run work with, and tells their processes of each other.
class World {
 public:
  virtual ~World() = default;
  virtual std::string device_name() const = 0;  ///< "host", "NVIDIA H200"
  /// Returns the driver and libraries that its speed depends on, "CUDA driver 13.0, runtime 13.0"; empty for
  /// none.
  virtual std::string software() const { return {}; }
  virtual int ranks() const = 0;
  /// Returns from which rank on ranks are on the devices of those before; 0: each has one.
  virtual int shared_devices() const { return 0; }
  /// Returns in how many quanta a device is given to its ranks, as ProfileTables::quanta; 0 where speeds do
  /// not depend on it, as all of the device is given.
  virtual int quanta() const { return 0; }
  /// Returns on what a rank of this process computes that others do not: "3 cores", "48 multiprocessors";
  /// empty where that is not fixed.
  virtual std::string part_of([[maybe_unused]] int rank) const { return {}; }
  /// Returns the ranks that this process runs, rising: all of them where it is the only one.
  virtual std::vector<int> local_ranks() const { return consecutive_ranks(0, ranks()).ranks; }

  /// Makes a local rank's device. It and the communicator are asked for once.
  virtual std::unique_ptr<Device> make_device(int rank) = 0;
  virtual std::unique_ptr<Communicator> make_communicator(int rank) = 0;

  /// Returns on how many cores ranks take turns to compute; 0: each computes when it likes.
  virtual int cores() const { return 0; }
  /// Returns the turns of one local rank of a tp group, asked for once each; null where it computes when it
  /// likes.
  virtual std::unique_ptr<ComputeTurn> make_turn([[maybe_unused]] int rank,
                                                 [[maybe_unused]] const RankGroup& tp) {
    return nullptr;
  }

  /// Returns whether this process runs rank 0: it alone prints, writes files and makes schedules.
  bool leads() const { return local_ranks().front() == 0; }

  /// Returns all processes' bytes by rank in the leading process, and nothing in the others. All processes
  /// call it and broadcast() in the same order; in one process the bytes come back.
  /// @throws as Communicator does: Aborted where the run has ended, Error (internal) for the timeout
  virtual std::vector<std::string> gather(std::string bytes) { return {std::move(bytes)}; }
  /// Returns the bytes of the leading process in all of them.
  virtual std::string broadcast(std::string bytes) { return bytes; }

  /// Returns what to add to DeviceEvent::time() of this process to have it on the leading one's clock.
  virtual Nanoseconds clock_offset() { return Nanoseconds{0}; }

  /// Ends the run of all other processes, which are told why.
  virtual void abort(const std::string& /*reason*/) {}
};

/// Does work in all processes of a world. Where it fails in one of them all fail alike, so that none waits
/// for another. All processes call it. @throws what `work` has thrown here, else an Error of the first
/// process that failed, of the same kind
void do_in_all(World& world, const std::function<void()>& work);

/// A LocalRank has what a rank of this process works with.
struct LocalRank {
  LocalRank(World& world, int rank, DType dtype);

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<Kernels> kernels;
};

/// A RankWork says what each rank does in its thread.
struct RankWork {
  std::function<void(std::size_t rank)> prepare;
  std::function<void(std::size_t rank)> run;  ///< begins when all ranks have prepared, or have failed to
  /// This is called in its thread where a rank fails by itself, not for what Aborted tells of another: to end
  /// the others' waiting.
  std::function<void(std::size_t rank, const std::string& message)> on_failure;
};

/// Does the work of ranks 0 to `count` - 1 and returns when all threads have ended.
/// @throws what the first rank that failed by itself has thrown.
void run_in_threads(std::size_t count, const RankWork& work);

}  // namespace dflop
