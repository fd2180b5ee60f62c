// A World carries the ranks of a live run: threads of the host, streams of one GPU, or a GPU each.
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/device.hpp"
#include "core/units.hpp"

namespace dflop {

/// A ComputeTurn gives a rank its turns to compute where a device has fewer cores than ranks. Ranks that
/// outnumber the cores would slow each other down while they compute, and the durations of their instructions
/// would say how many others ran beside them. A turn is that of a tp group, whose ranks begin and end it
/// together.
class ComputeTurn {
 public:
  virtual ~ComputeTurn() = default;

  /// Waits for the turn, and returns since when the cores are this rank's, on the clock of
  /// DeviceEvent::time(): that they come to it, as when its thread is woken, is its time and nobody else's.
  /// @throws as Communicator's calls.
  virtual Nanoseconds begin() = 0;
  /// Ends the turn. It is called before anything of another tp group is waited for.
  virtual void end() = 0;
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
  /// Returns the ranks that this process runs, rising: all of them where it is the only one.
  virtual std::vector<int> local_ranks() const {
    std::vector<int> all(static_cast<std::size_t>(ranks()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

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

}  // namespace dflop
