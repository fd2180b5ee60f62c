// The ranks of a live run and what carries them: threads of the host, streams of one GPU, or a GPU each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/device.hpp"

namespace dflop {

class World {
 public:
  virtual ~World() = default;
  virtual std::string device_name() const = 0;  ///< "host", "NVIDIA H200"
  virtual int ranks() const = 0;
  virtual std::vector<int> local_ranks() const = 0;  ///< that this process runs, rising

  /// Of one local rank; asked for once each.
  virtual std::unique_ptr<Device> make_device(int rank) = 0;
  virtual std::unique_ptr<Communicator> make_communicator(int rank) = 0;
};

}  // namespace dflop
