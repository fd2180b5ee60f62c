// The ranks of a live run and what carries them: threads of the host, streams of one GPU, or a GPU each.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/compute_turn.hpp"
#include "backend/device.hpp"
#include "core/units.hpp"

namespace dflop {

class World {
 public:
  virtual ~World() = default;
  virtual std::string device_name() const = 0;  ///< "host", "NVIDIA H200"
  /// Driver and libraries that its speed depends on, "CUDA driver 13.0, runtime 13.0"; empty for none.
  virtual std::string software() const { return {}; }
  virtual int ranks() const = 0;
  virtual std::vector<int> local_ranks() const = 0;  ///< that this process runs, rising

  /// Of one local rank; asked for once each.
  virtual std::unique_ptr<Device> make_device(int rank) = 0;
  virtual std::unique_ptr<Communicator> make_communicator(int rank) = 0;

  /// On which ranks take turns to compute; 0: each computes when it likes.
  virtual int cores() const { return 0; }
  /// Of one local rank of a tp group, asked for once each; null where it computes when it likes.
  virtual std::unique_ptr<ComputeTurn> make_turn([[maybe_unused]] int rank,
                                                 [[maybe_unused]] const RankGroup& tp) {
    return nullptr;
  }

  /// Whether this process runs rank 0: it alone prints, writes files and makes schedules.
  bool leads() const { return local_ranks().front() == 0; }

  /// What processes of one run tell each other, all of them calling in the same order; in one process it
  /// comes back. @throws as Communicator does: Aborted where the run has ended, Error (internal) for the
  /// timeout. All processes' bytes in the leading one, by rank; none in the others.
  virtual std::vector<std::string> gather(std::string bytes) { return {std::move(bytes)}; }
  /// Those of the leading process.
  virtual std::string broadcast(std::string bytes) { return bytes; }

  /// What to add to DeviceEvent::time() of this process to have it on the clock of the leading one.
  virtual Nanoseconds clock_offset() { return Nanoseconds{0}; }

  /// Ends the run of all other processes, which are told why.
  virtual void abort(const std::string& /*reason*/) {}
};

}  // namespace dflop
