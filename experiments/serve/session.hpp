// A Session schedules the batches of one training run for a client: they are pushed, and come back one after
// the other with their microbatches.
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

/// A BatchQueue hands batches to a SchedulingService, which waits for those that have not come.
class BatchQueue {
 public:
  using Batch = std::shared_ptr<const std::vector<Sample>>;

  /// Adds a batch and returns its iteration. After close() it is dropped.
  std::uint64_t push(Batch batch);

  /// Returns the next batch as soon as it is there, or null after close().
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

/// A Pushed is what has become of a batch.
struct Pushed {
  std::uint64_t iteration = 0;
  std::size_t items = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  /// Returns what is the same in all iterations, to be known before the first: of a plan's session that was
  /// asked for programs, the "program" (program_json()) of a batch of one made-up sample a bin. Else nothing.
  virtual nlohmann::ordered_json opened() const = 0;

  /// Takes a batch, and returns its iteration. Where outliers are delayed it is scheduled when the window is
  /// full, or with its "ends_window", as the last of a pass needs it; iterations then have samples of others,
  /// and next() says where each was pushed.
  /// @throws Error (input) naming the key
  virtual Pushed push(const JsonValue& batch) = 0;

  /// Counts a next() that will be called.
  /// @throws Error (input) where nothing was pushed for it
  virtual void ask() = 0;

  /// Waits for the next iteration, and returns it with its bins. Called once after each ask().
  /// @throws what the scheduler throws; Error (input) after close()
  virtual nlohmann::ordered_json next() = 0;

  /// Ends the work. A next() that waits returns soon, with an error.
  virtual void close() = 0;
};

/// Opens a session of items that are known by their costs ("bins", see read_item_bins()) or of a plan's
/// samples ("plan", a file's path or what one holds). Both may have "method" (auto), "seed" (1), "live"
/// (false: the same answers on every machine), "depth" (1), "steps" and "delay_outliers" (0), a number of
/// batches within which delay_outliers() regroups samples, by their FLOP or of items by the sum of their
/// costs; a plan's "program" (false) says whether answers have the iteration's program, and its "profile" is
/// a file as of `dflop profile`, whose costs are taken.
/// @throws Error (input) naming the key, (usage) for an unknown method
std::unique_ptr<Session> open_session(const JsonValue& json);

/// Returns the value, bound, status, reason, and the bin of each item, of what a scheduler found.
nlohmann::ordered_json schedule_json(const ScheduleResult& result);

}  // namespace dflop
