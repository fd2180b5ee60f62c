// Candidates are plans that planners run to find the best one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"
#include "core/support/clock.hpp"

namespace dflop {

/// FreeParts list the values that a request permits for the settings that do not depend on a plan's
/// parallelism: recomputation, placement and gradient buckets. Each list has at least one value.
struct FreeParts {
  std::vector<Recomputation> recomputations;  ///< from fastest to slowest, which is from most to least memory
  std::vector<RankOrder> placements;          ///< stage-major first
  /// Unless the request fixes them, these are buckets of 25 MiB, the default of PyTorch's
  /// DistributedDataParallel, and no buckets, which always come last. With sizes from 4 to 160 MB, times
  /// differ by less than 0.2 %.
  std::vector<Bytes> gradient_buckets;
};

FreeParts free_parts(const PlanRequest& request);

/// A CandidateFilter removes candidates before any is run.
using CandidateFilter = std::function<void(std::vector<Plan>&)>;

/// A CandidateRace runs candidates with the microbatches of random_assignment() and finds the one with the
/// smallest mean makespan over the request's iterations. A candidate fits if no rank's peak memory exceeds
/// the GPU's in any iteration; the chosen one also fits the request's further batches. Each candidate has the
/// least recomputation with which it fits, because less recomputation is never slower. The result does not
/// depend on the number of threads.
///
/// The time limit of the request's search ends the race once a candidate fits; if none fits, the race ends
/// after four times the limit plus a second. The result is then the best of the candidates that have run.
class CandidateRace {
 public:
  /// The request must outlive the race. Without a filter all candidates run.
  explicit CandidateRace(const PlanRequest& request, CandidateFilter filter = {});

  /// Runs the first iteration of the candidates that the filter leaves, with the first permitted placement
  /// and gradient buckets.
  void add(std::vector<Plan> candidates);

  /// Returns up to `most` candidates that fit, in increasing order of first iteration time.
  std::vector<Plan> leaders(std::size_t most) const;

  /// Tries all permitted placements and gradient buckets on the 16 leaders. Then runs all iterations of the
  /// 64 fastest candidates, and of 64 more as long as none fits. It stops a candidate when its makespans so
  /// far sum to more than the best one's total. Of equally good candidates it returns the first.
  /// PlanResult::objective is its mean makespan, and `candidates` counts the plans that were considered.
  PlanResult best();

 private:
  /// A Trial has the results of one candidate with its current recomputation.
  struct Trial {
    Nanoseconds total{0};        // makespans of the iterations run
    std::size_t iterations = 0;  // number of iterations run
    std::size_t level = 0;       // index into FreeParts::recomputations
    Bytes needed{};
    bool fits = true;
    bool fits_further = false;  // it was checked that it fits the further batches
  };

  std::size_t iterations() const { return request_.batches.size(); }
  bool complete(const Trial& trial) const { return trial.fits && trial.iterations == iterations(); }
  void check_memory(Trial& trial, Bytes needed) const;
  void run_next_iteration(const Plan& plan, Trial& trial) const;
  bool take_next_recomputation(std::size_t candidate);
  void run_iterations(std::size_t candidate, std::size_t count);
  void check_further(std::size_t candidate);
  void run_to_the_end(std::size_t candidate);
  void run_first_iterations(std::size_t first);
  bool is_late() const;
  std::vector<std::size_t> ahead(std::size_t most) const;
  bool has_placements(const Plan& plan) const;
  void add_variants();
  void run_all_iterations();

  const PlanRequest& request_;
  CandidateFilter filter_;
  FreeParts parts_;
  Stopwatch watch_;
  std::atomic<bool> has_run_ = false;  ///< some candidate that fits has run
  std::unique_ptr<Scheduler> random_;
  std::vector<Plan> candidates_;
  std::vector<Trial> trials_;
  /// This is the total time in nanoseconds of the best candidate that has run all iterations.
  std::atomic<std::int64_t> best_total_;
};

/// Plans with a planner that chooses only parallelism and microbatches, for the recomputation of the
/// request's options or for each permitted one. For each permitted recomputation, PlanResult::best has one
/// plan, fastest first; a separate race chooses the other FreeParts of each plan. All these plans are
/// returned, because the best plan for random microbatches may not be the best for a scheduler's. Plans that
/// do not fit come last; if none fits, the plan with the most recomputation comes first.
PlanResult with_best_parts(const Planner& planner, const PlanRequest& request, bool for_each_recomputation);

}  // namespace dflop
