// Executor: runs a Program. The simulator does so in virtual time, the live backend on real devices.
#pragma once

#include "core/timeline.hpp"

namespace dflop {

/// How much of a run is kept.
enum class Detail : std::uint8_t {
  usage,  ///< makespan and per-group usage
  spans,  ///< also every span and memory point
};

class Executor {
 public:
  virtual ~Executor() = default;

  /// Runs one iteration. Safe to call from several threads at once.
  /// @throws Error (internal) if the program deadlocks, which a verified program does not.
  virtual Timeline run(const Program& program, Detail detail) const = 0;
};

}  // namespace dflop
