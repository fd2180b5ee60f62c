// A rank's turns to compute, where a device has fewer cores than ranks.
#pragma once

#include "core/units.hpp"

namespace dflop {

/// Ranks that outnumber the cores would slow each other down while they compute, and the durations of their
/// instructions would say how many others ran beside them. So each computes in its turn. A turn is that of a
/// tp group, whose ranks begin and end it together.
class ComputeTurn {
 public:
  virtual ~ComputeTurn() = default;

  /// Waits for the turn, and says since when the cores are this rank's, on the clock of DeviceEvent::time():
  /// that they come to it, as when its thread is woken, is its time and nobody else's.
  /// @throws as Communicator's calls.
  virtual Nanoseconds begin() = 0;
  /// Before anything of another tp group is waited for.
  virtual void end() = 0;
};

}  // namespace dflop
