// The host is a device, too: a rank is a thread.
#pragma once

#include <memory>
#include <optional>

#include "backend/device.hpp"
#include "backend/host/machine.hpp"
#include "core/units.hpp"

namespace dflop {

struct HostDeviceOptions {
  int rank = 0;                 ///< for messages
  std::optional<Bytes> memory;  ///< the most that may be in use at once; none: what the machine gives
  std::shared_ptr<HostBudget> budget = nullptr;  ///< that ranks share; null: none
  std::optional<int> processor = {};             ///< on which its threads stay; none: any
};

/// Makes a device whose streams run what is put into them at once, in the calling thread: a rank is one
/// thread and has nothing that could overlap, and so order is kept without queues. A failure is thrown by the
/// call that fails, and synchronize() has nothing to wait for. Bytes in use are those that were asked for.
///
/// Buffers may outlive the device. Streams take events of the host only.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options);

}  // namespace dflop
