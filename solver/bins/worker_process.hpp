// A worker process runs code that may crash or never return.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// A worker may return at most this many values; a longer message means that the worker is corrupted.
inline constexpr std::uint64_t kMaxWorkerValues = 4'194'304;

enum class WorkerEnd : std::uint8_t { done, late, stopped, died };

struct WorkerResult {
  WorkerEnd end = WorkerEnd::died;
  std::vector<double> values;  ///< returned by `work`, if done
};

/// Calls `work` in a forked child process and returns its result. This needs a process instead of a thread,
/// because only a process can be stopped from outside. The child is killed `limit` after the call, or soon
/// after a stop is requested, and neither a crash nor a corrupted heap reaches the caller. The child has a
/// copy of the caller's memory but none of its threads, so `work` must not wait for threads, print or write
/// files; its output is discarded. A child that blocks anyway is soon replaced by another child, so `work`
/// may be called several times and must give the same result each time. If the result has more than
/// kMaxWorkerValues values, the child is treated as died. The values are not checked.
WorkerResult run_in_worker(const std::function<std::vector<double>()>& work, Seconds limit,
                           const std::stop_token& stop);

}  // namespace dflop
