// AssignmentSource: where a training loop gets its microbatches from. Simulations and the live backend read
// the same interface, so that a loop does not know whether a schedule is made while it runs, or read from a
// file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/scheduler.hpp"

namespace dflop {

/// What went wrong with a schedule while training went on.
enum class ScheduleEventKind : std::uint8_t {
  solver_failed,   ///< the scheduler threw, or its assignment breaks a rule; a heuristic's was taken
  solver_stalled,  ///< it did not return when its time was over, and was left behind
  late,            ///< the training loop had to wait, as no assignment was there when it asked
};

std::string_view to_string(ScheduleEventKind kind);

struct ScheduleEvent {
  std::uint64_t iteration = 0;
  ScheduleEventKind kind = ScheduleEventKind::solver_failed;
  std::string message;
};

/// One iteration, ready to be lowered and run.
struct ScheduledBatch {
  std::uint64_t iteration = 0;
  std::shared_ptr<const std::vector<Sample>> samples;  ///< the global batch, exactly as it was drawn
  ScheduleResult result;                               ///< places each of them once
  std::vector<ScheduleEvent> events;                   ///< since the batch before; of any iteration
  Seconds scheduling{0};  ///< that the scheduler took; zero where it was not waited for
  Seconds waited{0};      ///< that next() took of the training loop's time
};

class AssignmentSource {
 public:
  virtual ~AssignmentSource() = default;

  /// The iterations one after the other, from the first; none after the last.
  /// @throws Error (input) where a batch cannot be scheduled at all, as with fewer samples than bins.
  virtual std::optional<ScheduledBatch> next() = 0;
};

}  // namespace dflop
