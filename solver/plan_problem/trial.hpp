// The planners share these functions, which try a plan on whole iterations and say why none fits.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"

namespace dflop {

/// Returns a plan with everything that the request fixes; the caller sets layout, modules and microbatches.
Plan blank_plan(const PlanRequest& request, std::string_view planner);

/// Returns every tp, pp and dp that use so many GPUs, with a tp that divides the GPUs of a node, in the order
/// of tp, pp. They are without layers.
std::vector<ModulePlan> module_plans(const ClusterSpec& cluster, int gpus, int most_pp, int most_dp);

/// Checks a request's batches. @throws Error (input) unless there is one at least and each has gbs samples.
void check_batches(const PlanRequest& request);

/// Checks a request for a planner of disaggregated plans. @throws Error (usage) for orders of several chunks;
/// Error (input) without profile samples, and as check_batches()
void check_disaggregated_request(const PlanRequest& request, std::string_view planner);

/// Says why no plan gives encoder and LLM GPUs of their own; empty where one may.
std::string reason_against_apart(const PlanRequest& request);

/// Returns the most model state that any rank holds: less memory than this never does.
Bytes largest_model_state(const PlanRequest& request, const Plan& plan);

/// Runs one iteration of the request under an assignment of its samples.
Timeline run_iteration(const PlanRequest& request, const Plan& plan, std::size_t iteration,
                       const Assignment& assignment);

/// Returns the most memory that any GPU needs at any time of a batch that a scheduler fills. It is kept
/// within `limit`, where there is one and it is not by itself; nothing where the scheduler cannot do that.
std::optional<Bytes> filled_peak(const Problem& problem, const Plan& plan, const Batch& batch,
                                 const Scheduler& scheduler, std::uint64_t seed, std::uint64_t iteration,
                                 std::optional<Bytes> limit);

/// Returns what the fullest GPU needs with an assignment of a batch, in the order in which that is run.
Bytes assigned_peak(const Problem& problem, const Plan& plan, const Batch& batch,
                    const Assignment& assignment);

/// Returns 98 % of the usable memory: a plan that is within it in some batches mostly fits others, too.
Bytes with_memory_to_spare(Bytes usable);

/// Returns the first memory beyond a limit that a plan needs in a further batch; nothing where all fit.
/// `within`: the scheduler keeps them within it where it can.
std::optional<Bytes> overrun(const Problem& problem, const Plan& plan, std::span<const Batch> further,
                             const Scheduler& scheduler, std::uint64_t seed, bool within, Bytes limit);

/// A ClosestMiss is the plan that misses the memory by the least.
class ClosestMiss {
 public:
  /// Returns whether a plan that needs so much would be kept.
  bool is_closer(Bytes needed) const { return !plan_ || needed < needed_; }

  /// Keeps the plan if it needs less than those before; the first of equal ones stays.
  void add(const Plan& plan, Bytes needed) {
    if (!is_closer(needed)) return;
    plan_ = plan;
    needed_ = needed;
  }
  void add(const ClosestMiss& other) {
    if (other.plan_) add(*other.plan_, other.needed_);
  }

  /// Returns "every configuration exceeds GPU memory; the closest (...) needs at least 91.3 GiB on one rank,
  /// 76.0 GiB are usable". It says "at least" because a trial ends at the first iteration that does not fit.
  /// The text is empty before the first add().
  std::string reason(const ClusterSpec& cluster) const;

 private:
  std::optional<Plan> plan_;
  Bytes needed_;
};

/// A TrialProgress reports progress to the request's callback from several threads, one at a time.
class TrialProgress {
 public:
  TrialProgress(const PlanRequest& request, std::int64_t total) : request_(request), total_(total) {}

  void add(std::int64_t done) {
    const std::lock_guard lock(mutex_);
    done_ += done;
    if (request_.progress) request_.progress(done_, total_);
  }

 private:
  const PlanRequest& request_;
  std::int64_t total_;
  std::mutex mutex_;
  std::int64_t done_ = 0;
};

}  // namespace dflop
