// The planners share these functions, which try a plan on whole iterations and explain why no plan fits.
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

/// Returns every tp, pp and dp that together use `gpus` GPUs, with a tp that divides the GPUs of a node. They
/// are sorted by tp, then pp. Their layers are not set.
std::vector<ModulePlan> module_plans(const ClusterSpec& cluster, int gpus, int most_pp, int most_dp);

/// Checks a request's batches. @throws Error (input) unless there is at least one and each has gbs samples.
void check_batches(const PlanRequest& request);

/// Checks a request for a planner of disaggregated plans. @throws Error (usage) for orders of several chunks
/// or that spread the encoder; Error (input) if there are no profile samples; and what check_batches() throws
void check_disaggregated_request(const PlanRequest& request, std::string_view planner);

/// Returns why no plan can give encoder and LLM separate GPUs; empty if such a plan may exist.
std::string reason_against_apart(const PlanRequest& request);

/// Returns the largest model state of any rank, which is a lower bound on its memory.
Bytes largest_model_state(const PlanRequest& request, const Plan& plan);

/// Simulates one iteration of the request with an assignment of its samples.
Timeline run_iteration(const PlanRequest& request, const Plan& plan, std::size_t iteration,
                       const Assignment& assignment);

/// Returns the peak memory of any GPU for a batch whose bins a scheduler fills. If there is a `limit` and the
/// peak exceeds it, the scheduler fills the bins again within the limit. Returns nullopt if it cannot.
std::optional<Bytes> filled_peak(const Problem& problem, const Plan& plan, const Batch& batch,
                                 const Scheduler& scheduler, std::uint64_t seed, std::uint64_t iteration,
                                 std::optional<Bytes> limit);

/// Returns the peak memory of the fullest GPU for a batch with this assignment, in the order in which the
/// plan runs it.
Bytes assigned_peak(const Problem& problem, const Plan& plan, const Batch& batch,
                    const Assignment& assignment);

/// Returns 98 % of the usable memory. A plan that fits into this for some batches usually fits all memory for
/// others, too.
Bytes with_memory_to_spare(Bytes usable);

/// Returns the memory that a plan needs in the first further batch that exceeds the limit; nullopt if all
/// fit. With `within`, the scheduler keeps batches within the limit if it can.
std::optional<Bytes> overrun(const Problem& problem, const Plan& plan, std::span<const Batch> further,
                             const Scheduler& scheduler, std::uint64_t seed, bool within, Bytes limit);

/// A ClosestMiss is the plan that exceeds the memory by the least.
class ClosestMiss {
 public:
  /// Returns whether a plan that needs this much would be kept.
  bool is_closer(Bytes needed) const { return !plan_ || needed < needed_; }

  /// Keeps the plan if it needs less than all earlier plans. Of equal plans the first is kept.
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
  /// Empty before the first add().
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
