// What the threads of the scheduling service hand to each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/scheduler.hpp"

namespace dflop {

using AsyncClock = std::chrono::steady_clock;

/// One iteration on its way through the service.
struct AsyncItem {
  std::uint64_t iteration = 0;
  std::shared_ptr<const std::vector<Sample>> samples;
  std::shared_ptr<const CostModel> cost;
  std::stop_source stop;               ///< of the scheduler
  std::optional<ScheduleResult> best;  ///< so far
  std::exception_ptr error;            ///< in the place of a result; nothing comes after
  bool claimed = false;                ///< a scheduler works or has worked on it
  bool improved = false;               ///< best is the scheduler's, not LPT's
  bool solved = false;                 ///< nothing better will come
  std::optional<AsyncClock::time_point> taken;
  Seconds scheduling{0};

  /// Says of LPT's assignment that it stands in for the scheduler's, unless it is proven optimal.
  void fall_back(const std::string& reason);
};

/// A thread that runs the scheduler.
struct AsyncSolver {
  std::shared_ptr<AsyncItem> item;  ///< at work on
  AsyncClock::time_point begin;     ///< of that work
  bool left_behind = false;
  bool ended = false;
};

bool feasible(const ScheduleResult& result);

/// Whether what a scheduler found is to be taken in the place of what there is: not if that is feasible and
/// the other is not, or if both have one objective and the other's value is larger.
bool replaces(const ScheduleResult& found, const std::optional<ScheduleResult>& best);

}  // namespace dflop
