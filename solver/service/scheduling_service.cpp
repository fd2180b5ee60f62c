#include "solver/service/scheduling_service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/support/core_gate.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

/// An AsyncItem is one iteration on its way through the service.
struct AsyncItem {
  std::uint64_t iteration = 0;
  std::shared_ptr<const std::vector<Sample>> samples;
  std::shared_ptr<const CostModel> cost;
  std::stop_source stop;               ///< of the scheduler
  std::optional<ScheduleResult> best;  ///< so far
  std::exception_ptr error;            ///< instead of a result; nothing comes after
  bool claimed = false;                ///< a scheduler works or has worked on it
  bool improved = false;               ///< best is the scheduler's, not LPT's
  bool solved = false;                 ///< no better result will come
  std::optional<Clock::time_point> taken;
  Seconds scheduling{0};

  /// Marks LPT's assignment as a substitute for the scheduler's, unless it is proven optimal.
  void fall_back(const std::string& reason) {
    if (improved || !best || best->status != ScheduleStatus::heuristic) return;
    best->status = ScheduleStatus::fallback;
    best->reason = reason;
  }
};

/// An AsyncSolver is a thread that runs the scheduler.
struct AsyncSolver {
  std::shared_ptr<AsyncItem> item;  ///< that it works on
  Clock::time_point begin;          ///< of that work
  bool left_behind = false;
  bool ended = false;
};

/// Converts a duration for waiting, limited to years, which no clock overflows.
Clock::duration ticks(Seconds seconds) {
  constexpr Seconds kMax(1e8);
  seconds = std::min(seconds, kMax);
  return std::chrono::duration_cast<Clock::duration>(seconds);
}

std::string milliseconds(Seconds seconds) {
  return fmt::format("{} ms", std::chrono::duration_cast<std::chrono::milliseconds>(seconds).count());
}

}  // namespace

/// The threads of a service share a State; an abandoned thread keeps it alive. One mutex guards the state,
/// its items and solvers. No scheduler, draw() or stop callback runs while the mutex is locked.
class SchedulingService::State : public std::enable_shared_from_this<State> {
 public:
  State(ServiceInput input, const ServiceOptions& options)
      : input_(std::move(input)),
        options_(options),
        heuristic_(input_.heuristic ? input_.heuristic : make_scheduler("lpt", {.prove = false})),
        drawn_(options.first) {}

  void start() {
    start_solver();
    keeper_ = std::jthread([this] { keep(); });
  }

  std::optional<ScheduledBatch> next() {
    const Clock::time_point begin = Clock::now();
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || ready(); });
    if (live()) wait_until_feasible(lock);
    if (stopped_ || queue_.empty()) return std::nullopt;
    const std::shared_ptr<AsyncItem> item = queue_.front();
    if (item->error) std::rethrow_exception(item->error);
    queue_.pop_front();
    item->taken = Clock::now();
    const Seconds waited = *item->taken - begin;
    if (live() && waited > options_.late_after) {
      record(item->iteration, ScheduleEventKind::late,
             "no assignment was found yet, waited " + milliseconds(waited));
    }
    ScheduledBatch batch{item->iteration,  item->samples, std::move(*item->best), std::exchange(events_, {}),
                         item->scheduling, waited};
    const bool solved = item->solved;
    lock.unlock();
    changed_.notify_all();
    if (!solved) item->stop.request_stop();
    return batch;
  }

  void stop() {
    const std::lock_guard one(stopping_);
    std::optional<std::stop_source> running;
    Lock lock(mutex_);
    stopped_ = true;
    if (solver_ && solver_->item) running = solver_->item->stop;
    lock.unlock();
    changed_.notify_all();
    if (running) running->request_stop();
    if (keeper_.joinable()) keeper_.join();

    lock.lock();
    if (!solver_) return;
    const std::shared_ptr<AsyncSolver> solver = std::move(solver_);
    const auto ended = [&] { return solver->ended; };
    if (live()) {
      changed_.wait_for(lock, ticks(options_.stall_after), ended);
    } else {
      changed_.wait(lock, ended);
    }
    const bool gone = ended();
    lock.unlock();
    if (gone) {
      solver_thread_.join();
    } else {
      solver_thread_.detach();
    }
  }

 private:
  bool live() const { return options_.mode == ServiceMode::live; }
  void record(std::uint64_t iteration, ScheduleEventKind kind, std::string message) {
    events_.push_back({iteration, kind, std::move(message)});
  }

  ScheduleRequest request(const AsyncItem& item) const {
    return {*item.samples, input_.plan,    input_.model,    *item.cost,
            options_.seed, item.iteration, options_.limits, item.stop.get_token()};
  }

  // Runs in the keeper's thread; start() also calls start_solver().

  /// Draws batches while the queue is not full, and watches the scheduler.
  void keep() {
    become_batch_work();
    Lock lock(mutex_);
    while (!stopped_) {
      const std::optional<Clock::time_point> limit = overdue();
      if (limit && Clock::now() >= *limit) leave_behind(lock);
      if (!solver_ && left_behind_ < options_.most_stalled) replace_solver();
      if (exhausted_ || queue_.size() >= static_cast<std::size_t>(options_.depth)) {
        if (limit) {
          changed_.wait_until(lock, *limit);
        } else {
          changed_.wait(lock);
        }
        continue;
      }
      const std::uint64_t iteration = drawn_++;
      lock.unlock();
      std::shared_ptr<AsyncItem> item = prepare(iteration);
      lock.lock();
      exhausted_ = !item || item->error;
      if (item) queue_.push_back(std::move(item));
      changed_.notify_all();
    }
  }

  /// Draws a batch; null after the last.
  std::shared_ptr<AsyncItem> prepare(std::uint64_t iteration) const {
    auto item = std::make_shared<AsyncItem>();
    item->iteration = iteration;
    try {
      item->samples = input_.draw(iteration);
      if (!item->samples) return nullptr;
      item->cost = input_.cost_at ? input_.cost_at(iteration) : input_.cost;
      if (live()) item->best = run_heuristic(*item);
    } catch (...) {
      item->error = std::current_exception();
      item->claimed = true;
    }
    return item;
  }

  ScheduleResult run_heuristic(const AsyncItem& item) const {
    ScheduleRequest asked = request(item);
    asked.limits.steps.reset();  // they are for the scheduler
    ScheduleResult result = heuristic_->schedule(asked);
    if (result.feasible()) validate(result.assignment, input_.plan, item.samples->size());
    return result;
  }

  /// Returns the time by which the scheduler should have returned; none while nothing waits for it.
  std::optional<Clock::time_point> overdue() const {
    if (!live() || !solver_ || !solver_->item) return std::nullopt;
    std::optional<Clock::time_point> end = solver_->item->taken;
    if (options_.limits.time_limit) {
      const Clock::time_point limit = solver_->begin + ticks(*options_.limits.time_limit);
      end = end ? std::min(*end, limit) : limit;
    }
    if (end) *end += ticks(options_.stall_after);
    return end;
  }

  void leave_behind(Lock& lock) {
    const std::shared_ptr<AsyncItem> item = std::move(solver_->item);
    ++left_behind_;
    const std::string problem = fmt::format(
        "scheduler '{}' has not returned {} after its deadline; its thread is abandoned, {} of at most {}",
        input_.scheduler->name(), milliseconds(options_.stall_after), left_behind_, options_.most_stalled);
    record(item->iteration, ScheduleEventKind::solver_stalled, problem);
    item->fall_back(problem);
    item->solved = true;
    solver_->left_behind = true;
    solver_.reset();
    solver_thread_.detach();
    changed_.notify_all();
    lock.unlock();
    item->stop.request_stop();
    lock.lock();
  }

  void start_solver() {
    auto solver = std::make_shared<AsyncSolver>();
    solver_thread_ = std::jthread([state = shared_from_this(), solver] { state->solve(*solver); });
    solver_ = std::move(solver);
  }

  /// Calls start_solver(). If the system has no threads left, training continues with LPT.
  void replace_solver() {
    try {
      start_solver();
    } catch (const std::system_error& error) {
      left_behind_ = options_.most_stalled;
      record(drawn_, ScheduleEventKind::solver_failed,
             std::string("no thread could be started for it: ") + error.what());
    }
  }

  // Runs in a solver's thread.

  void solve(AsyncSolver& self) {
    become_batch_work();
    Lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopped_ || unclaimed(); });
      if (stopped_) break;
      const std::shared_ptr<AsyncItem> item = unclaimed();
      item->claimed = true;
      self.item = item;
      self.begin = Clock::now();
      // The keeper waits until this is overdue.
      if (options_.limits.time_limit) changed_.notify_all();
      lock.unlock();
      run_scheduler(self, *item);
      lock.lock();
      if (self.left_behind) break;
      item->scheduling = Clock::now() - self.begin;
      item->solved = true;
      self.item.reset();
      changed_.notify_all();
    }
    self.ended = true;
    if (self.left_behind) --left_behind_;
    changed_.notify_all();
  }

  std::shared_ptr<AsyncItem> unclaimed() const {
    const auto found = std::ranges::find(queue_, false, [](const auto& item) { return item->claimed; });
    return found == queue_.end() ? nullptr : *found;
  }

  void run_scheduler(const AsyncSolver& self, AsyncItem& item) {
    ScheduleRequest asked = request(item);
    if (live()) {
      asked.improved = [&](const ScheduleResult& found) {
        const std::string problem = offer(self, item, found);
        if (!problem.empty()) fail(self, item, problem);
      };
    }
    std::string problem;
    try {
      problem = offer(self, item, input_.scheduler->schedule(asked));
    } catch (const Error& error) {
      if (!live() && (error.kind() == ErrorKind::usage || error.kind() == ErrorKind::input)) {
        const Lock lock(mutex_);
        item.error = std::current_exception();
        return;
      }
      problem = error.what();
    } catch (const std::exception& error) {
      problem = error.what();
    } catch (...) {
      problem = "an exception of unknown type";
    }
    if (!problem.empty()) fail(self, item, problem);
  }

  /// Takes an assignment if it is valid. Returns its error, or nothing.
  std::string offer(const AsyncSolver& self, AsyncItem& item, ScheduleResult found) {
    try {
      if (found.feasible()) validate(found.assignment, input_.plan, item.samples->size());
    } catch (const Error& error) {
      return error.what();
    }
    const Lock lock(mutex_);
    if (self.left_behind || item.taken || !replaces(found, item.best)) return "";
    // The caller frees the previous best without holding a lock.
    if (!item.best) item.best.emplace();
    std::swap(*item.best, found);
    item.improved = true;
    changed_.notify_all();
    return "";
  }

  void fail(const AsyncSolver& self, AsyncItem& item, const std::string& problem) {
    std::optional<ScheduleResult> instead;
    std::exception_ptr error;
    try {
      if (!live()) instead = run_heuristic(item);
    } catch (...) {
      error = std::current_exception();
    }
    const Lock lock(mutex_);
    if (self.left_behind) return;
    record(item.iteration, ScheduleEventKind::solver_failed,
           fmt::format("scheduler '{}' failed: {}", input_.scheduler->name(), problem));
    if (!live()) item.best = std::move(instead);
    item.error = error;
    if (!item.taken) item.fall_back(problem);
  }

  // Runs in the training loop's thread.

  bool ready() const {
    if (queue_.empty()) return exhausted_;
    const AsyncItem& item = *queue_.front();
    return item.error || item.solved || (live() && item.best);
  }

  /// Waits until there is a feasible assignment. The training loop cannot continue without one, and the
  /// scheduler may find one that LPT misses. So this waits for the scheduler for up to `stall_after`.
  void wait_until_feasible(Lock& lock) {
    if (queue_.empty()) return;
    const std::shared_ptr<AsyncItem> item = queue_.front();
    changed_.wait_for(lock, ticks(options_.stall_after),
                      [&] { return stopped_ || item->error || item->solved || item->best->feasible(); });
  }

  const ServiceInput input_;
  const ServiceOptions options_;
  const std::shared_ptr<const Scheduler> heuristic_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<AsyncItem>> queue_;  // drawn and not yet taken
  std::uint64_t drawn_;
  bool exhausted_ = false;  // nothing more will be drawn
  bool stopped_ = false;
  std::vector<ScheduleEvent> events_;  // not yet returned by next()
  std::shared_ptr<AsyncSolver> solver_;
  int left_behind_ = 0;  // abandoned threads that have not returned yet

  std::mutex stopping_;  // one stop() at a time
  std::jthread keeper_;
  std::jthread solver_thread_;
};

bool replaces(const ScheduleResult& found, const std::optional<ScheduleResult>& best) {
  if (!best || !best->feasible()) return true;
  if (!found.feasible()) return false;
  return found.objective != best->objective || found.value <= best->value;
}

SchedulingService::SchedulingService(ServiceInput input, const ServiceOptions& options) {
  if (options.depth < 1) {
    throw Error(ErrorKind::usage,
                fmt::format("scheduling service: expected a depth of at least 1, found {}", options.depth));
  }
  state_ = std::make_shared<State>(std::move(input), options);
  state_->start();
}

std::optional<ScheduledBatch> SchedulingService::next() {
  return state_->next();
}

void SchedulingService::stop() {
  state_->stop();
}

}  // namespace dflop
