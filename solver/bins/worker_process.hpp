// A worker process runs code that may crash or not return.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// A worker may return so many values at most: a longer message is that of a corrupted one.
inline constexpr std::uint64_t kMostWorkerValues = 4'194'304;

enum class WorkerEnd : std::uint8_t { done, late, stopped, died };

struct WorkerResult {
  WorkerEnd end = WorkerEnd::died;
  std::vector<double> values;  ///< of `work`, if done
};

/// Calls `work` in a forked child process and returns what it returns. A child and no thread, because only a
/// process can be ended from outside: it is killed `limit` after the call or soon after a stop is asked for,
/// and neither a crash nor a corrupted heap reaches the caller. The child has a copy of the caller's memory
/// but none of its threads, so `work` must not wait for any, print or write files; its output goes nowhere. A
/// child that nevertheless waits is soon replaced by another, so `work` must be the same each time. More than
/// kMostWorkerValues values count as died. What they are is not looked at.
WorkerResult run_in_worker(const std::function<std::vector<double>()>& work, Seconds limit,
                           const std::stop_token& stop);

}  // namespace dflop
