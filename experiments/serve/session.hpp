// A Session schedules the batches of one training run for a client. The client pushes batches and gets them
// back one by one, divided into microbatches.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "core/scheduler.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// A BatchQueue passes batches to a SchedulingService, which waits until they arrive.
class BatchQueue {
 public:
  using Batch = std::shared_ptr<const std::vector<Sample>>;

  /// Adds a batch and returns its iteration. After close() the batch is dropped.
  std::uint64_t push(Batch batch);

  /// Waits for the next batch and returns it; null after close().
  Batch draw();

  void close();

  std::uint64_t pushed() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> batches_;
  std::uint64_t pushed_ = 0;
  bool closed_ = false;
};

/// A Pushed describes a batch that was accepted.
struct Pushed {
  std::uint64_t iteration = 0;
  std::size_t items = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  /// Returns the values that all iterations share and that the client needs first. If the session is for a
  /// plan and its answers contain programs, this is the "program" (program_json()) of a batch with one
  /// made-up sample per bin. Otherwise it is empty.
  virtual nlohmann::ordered_json opened() const = 0;

  /// Takes a batch, and returns its iteration and number of items. If outliers are delayed, batches are
  /// scheduled when their window is full, or when a batch has "ends_window", which the last batch of a pass
  /// must have. An iteration may then contain samples of other batches; next() tells in which batch each
  /// sample was pushed.
  /// @throws Error (input) naming the key
  virtual Pushed push(const JsonValue& batch) = 0;

  /// Announces a call of next(). Each call of next() needs one call of ask() before it.
  /// @throws Error (input) if each batch of the complete windows already has a call of next()
  virtual void ask() = 0;

  /// Waits for the next iteration, and returns it with its bins. Call it once after each ask().
  /// @throws what the scheduler throws; Error (input) after close()
  virtual nlohmann::ordered_json next() = 0;

  /// Ends the session. A waiting next() returns soon, with an error.
  virtual void close() = 0;
};

/// Opens a session for items known only by their costs ("bins", see read_item_bins()) or for a plan's samples
/// ("plan", a file's path or its contents). Both accept "method" (auto), "seed" (1), "live" (false: the same
/// answers on every machine), "depth" (1), "steps" and "delay_outliers" (0). "delay_outliers" is the number
/// of batches in a window in which delay_outliers() regroups samples by their FLOP, or items by the sum of
/// their costs. With "plan", two more keys are allowed: "program" (false) says whether answers contain the
/// iteration's program, and "profile" is a file from `dflop profile` whose costs are used.
/// @throws Error (input) naming the key, (usage) for an unknown method
std::unique_ptr<Session> open_session(const JsonValue& json);

/// Returns a scheduler's result as JSON: value, bound, status, reason, and the bin of each item.
nlohmann::ordered_json schedule_json(const ScheduleResult& result);

}  // namespace dflop
