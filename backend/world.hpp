// The ranks of a live run and what carries them: threads of the host, streams of one GPU, or a GPU each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/compute_turn.hpp"
#include "backend/device.hpp"

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
};

}  // namespace dflop
