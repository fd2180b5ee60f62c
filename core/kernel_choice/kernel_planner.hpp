// A kernel variant is one of several implementations of an operation; a key is an operation with its sizes.
// The KernelPlanner decides before each step which variant all ranks of a run use for each key, and learns
// from their measurements after the step.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/kernel_choice/kernel_choices.hpp"
#include "core/kernel_choice/kernel_table.hpp"
#include "core/names.hpp"

namespace dflop {

/// A KernelMode says how variants are chosen.
enum class KernelMode : std::uint8_t {
  fixed,    ///< the default of each operation, always
  profile,  ///< from a previously measured table, which stays unchanged: the same choices in every run
  learn,    ///< start from that table and learn from each step
};

template <>
inline constexpr NameTable<KernelMode, 3> kNames<KernelMode> = {
    {{KernelMode::fixed, "default"}, {KernelMode::profile, "profile"}, {KernelMode::learn, "learn"}}};

/// Trials and timing may take this fraction of the elapsed time. So even a run in which no variant beats the
/// default should reach 99.5 % of the pace of a run that does not learn.
inline constexpr double kLearningBudget = 0.005;
/// Trials and timing may take this fraction of the elapsed time even if each call on trial is as slow as the
/// planner thinks possible (see KernelPlanner).
inline constexpr double kMaxLearningBudget = 0.01;

/// A variant is dropped if its shortest call (first round) or its mean (second round) takes more than this
/// factor times the time of the best.
inline constexpr double kFirstRoundLimit = 1.5;
inline constexpr double kSecondRoundLimit = 1.15;

/// A KernelTrial compares two variants that alternated: the one on trial and the one in use.
struct KernelTrial {
  KernelStats own;      ///< times of the variant on trial
  KernelStats used;     ///< times of the variant in use
  double least_ns = 0;  ///< shortest time of the variant on trial

  /// Returns the variant's mean time divided by the mean time of the variant in use; 1 if unknown.
  double ratio() const { return used.count > 0 ? own.mean / used.mean : 1; }
  /// Returns the shortest time of the variant on trial divided by the mean time of the variant in use; 1 if
  /// unknown. One interrupted call does not change it.
  double least_ratio() const { return used.count > 0 ? least_ns / used.mean : 1; }
};

/// A KernelState is what a planner remembers of a key in addition to its table.
struct KernelState {
  std::size_t variant = 0;  ///< in use
  std::uint32_t alive = 0;  ///< a bit for each variant that is still on trial; 0: trials are over
  std::size_t round = 0;    ///< finished rounds of the current trials
  std::int64_t ranks = 0;   ///< max number of ranks that called this key in a step so far
  std::int64_t calls = 0;   ///< calls of this key in the last step by the rank that made the fewest; ranks
                            ///< without any do not count
  std::int64_t next_trials = 0;     ///< step in which trials begin again
  std::vector<KernelTrial> trials;  ///< by variant
};

/// A KernelPlanner chooses variants for all ranks. Only the leading process has one.
///
/// Learning takes each key through rounds of trials. In a round, a variant alternates with the one in use, so
/// changes in the machine's pace affect both alike. After 2 calls each, variants are dropped whose shortest
/// call takes over 1.5 times the best; after 8, those whose mean is over 1.15 times the best. After 32, the
/// best one comes into use if its interval lies below the interval of the variant it alternated with; if the
/// intervals overlap, nothing changes. 64 steps later, trials begin again with the variants that were not
/// twice as slow, and with the default, which comes back if it is not slower. A key that ranks call only once
/// per step alternates between steps.
///
/// Trials are limited to those whose expected cost fits into `kLearningBudget` and whose worst cost fits into
/// `kMaxLearningBudget`. The worst case of a call is three standard deviations above the mean of its variant
/// or, for an unknown variant, 16 times the time of the one in use. A variant that is slower still can
/// overdraw the budget once; trials then pause until it is paid back. Because ranks wait for each other, the
/// excess of all ranks is added up, as if none of it overlapped.
class KernelPlanner {
 public:
  KernelPlanner(KernelMode mode, KernelTable table) : mode_(mode), table_(std::move(table)) {}

  KernelMode mode() const { return mode_; }
  const KernelTable& table() const { return table_; }
  const std::map<KernelKey, KernelState>& states() const { return states_; }
  /// Returns the time that learning took, summed over ranks, as a fraction of the elapsed time.
  double spent_fraction() const { return elapsed_ns_ > 0 ? spent_ns_ / elapsed_ns_ : 0; }

  /// Returns the variant in use for a key.
  std::size_t choose(const KernelKey& key) const;
  /// Returns the choices of all ranks for the next step.
  KernelChoices next_step() const;
  /// Ends a step that took `elapsed_ns`, with the observations of each rank, always in the same order. Unless
  /// the mode is `learn`, only the step count changes.
  void end_step(std::span<const std::vector<KernelObservation>> ranks, double elapsed_ns);

 private:
  void plan_trials(KernelChoices& choices) const;
  void add(const KernelObservation& seen);
  void advance(const KernelKey& key, KernelState& state);
  void begin_trials(const KernelKey& key, KernelState& state, double slowest) const;
  void settle(KernelState& state, std::size_t variant) const;

  KernelMode mode_;
  KernelTable table_;
  std::map<KernelKey, KernelState> states_;
  std::int64_t step_ = 0;  // steps done
  double elapsed_ns_ = 0;  // time of these steps
  double spent_ns_ = 0;    // part of the budget used, summed over ranks
};

}  // namespace dflop
