// An Executor runs an Iteration. The simulator does so in virtual time, the live backend on real devices.
#pragma once

#include "core/iteration/iteration.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// A Detail says how much of a run is kept.
enum class Detail : std::uint8_t {
  usage,  ///< makespan and per-group usage
  spans,  ///< also every span and memory point
};

/// An Executor runs iterations and says what ran when. tests/backend/contract/executor_test.cpp has what all
/// of them promise.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Runs one iteration. It may be called from several threads at once; a live executor takes one after the
  /// other.
  /// @throws Error (internal) if the program deadlocks, which a verified program does not, or, of a live
  /// executor, if it is of another plan than the executor's; what a device throws.
  virtual Timeline run(const Iteration& iteration, Detail detail) const = 0;
};

}  // namespace dflop
