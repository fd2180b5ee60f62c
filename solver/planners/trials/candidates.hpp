// Candidates are plans of which planners take the best by running them.
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

/// FreeParts are the values that a request leaves open for what every plan has, whatever its parallelism;
/// each list has one value at least.
struct FreeParts {
  std::vector<Recomputation> recomputations;  ///< rising in time, falling in memory
  std::vector<RankOrder> placements;          ///< stage-major first
  /// Without buckets, and with those of 25 MiB, the default of PyTorch's DistributedDataParallel, first:
  /// sizes from 4 to 160 MB differ by less than 0.2 %.
  std::vector<Bytes> gradient_buckets;
};

FreeParts free_parts(const PlanRequest& request);

/// A CandidateFilter leaves out candidates before any is run.
using CandidateFilter = std::function<void(std::vector<Plan>&)>;

/// A CandidateRace runs candidates with the microbatches of random_assignment() and finds the one with the
/// smallest mean makespan over the request's iterations. A candidate fits if no rank's peak memory exceeds
/// the GPU's in any iteration; what is chosen fits the request's further batches, too. It has the least
/// recomputation with which it fits, as less is never slower. What is found does not depend on the number of
/// threads. A time limit of the request's search ends the race once a candidate fits, or after four times as
/// long and a second; the best of those that have run is then the result.
class CandidateRace {
 public:
  /// Takes a request that outlives the race. Without a filter all candidates run.
  explicit CandidateRace(const PlanRequest& request, CandidateFilter filter = {});

  /// Runs the first iteration of the candidates that the filter leaves, with the first placement and gradient
  /// buckets that are open.
  void add(std::vector<Plan> candidates);

  /// Returns those that fit, the shortest first iteration first, `most` of them.
  std::vector<Plan> leaders(std::size_t most) const;

  /// Gives the 16 leaders all placements and gradient buckets that are open, runs all iterations of the 64
  /// that are then ahead, and of 64 more as long as none fits, but for those whose makespans so far already
  /// sum to more than all of the best one's, and returns the first of the best. PlanResult::objective is its
  /// mean makespan, candidates counts the plans that were looked at.
  PlanResult best();

 private:
  /// A Trial says how one candidate did with the recomputation that it has.
  struct Trial {
    Nanoseconds total{0};        // of the iterations run
    std::size_t iterations = 0;  // that were run
    std::size_t level = 0;       // of FreeParts::recomputations
    Bytes needed{};
    bool fits = true;
    bool fits_further = false;  // this has been checked
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
  std::atomic<bool> has_run_ = false;  ///< some candidate that fits
  std::unique_ptr<Scheduler> random_;
  std::vector<Plan> candidates_;
  std::vector<Trial> trials_;
  /// This is the total of the best candidate that has run all iterations, in nanoseconds.
  std::atomic<std::int64_t> best_total_;
};

/// Plans with a planner that chooses parallelism and microbatches alone, for the recomputation of the
/// request's options or for each that is open. PlanResult::best has a plan for each that is open, with the
/// other free parts that are best in a race of its own, the fastest first: other microbatches than random
/// ones may ask for another. Plans that do not fit are behind; where none does, that with the most
/// recomputation is the first.
PlanResult with_best_parts(const Planner& planner, const PlanRequest& request, bool for_each_recomputation);

}  // namespace dflop
