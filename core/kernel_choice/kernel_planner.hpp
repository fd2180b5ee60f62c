// The KernelPlanner decides before each step which kernel variants all ranks of a run use, and learns from
// their measurements after it.
#pragma once

#include <cstdint>
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

/// A LearningRule has the parameters of a learning planner.
struct LearningRule {
  /// Trials and timing may take this fraction of the elapsed time. With it, a run in which no other variant
  /// is worthwhile should reach 0.995 times the pace of a run that does not learn.
  double budget = 0.005;
  /// They may take this fraction if each call on trial is as slow as it can be.
  double most = 0.01;
  double timing_ns = 60;  ///< cost of timing one call
  /// A variant without measurements is expected to take this many times as long as the one in use, and at
  /// most `unknown_most` times.
  double unknown = 4;
  double unknown_most = 16;

  bool operator==(const LearningRule&) const = default;
};

/// A KernelTrial compares two variants that alternated: the one on trial and the one in use.
struct KernelTrial {
  KernelStats own;
  KernelStats used;
  double least_ns = 0;  ///< shortest of `own`

  /// Returns the variant's mean time over that of the variant in use; 1 if unknown.
  double ratio() const { return used.count > 0 ? own.mean / used.mean : 1; }
  /// Returns the same ratio for the variant's shortest call, so that one interrupted call does not rule it
  /// out.
  double least_ratio() const { return used.count > 0 ? least_ns / used.mean : 1; }
  bool operator==(const KernelTrial&) const = default;
};

/// A KernelState is what a planner remembers of a key in addition to its table.
struct KernelState {
  std::uint32_t variant = 0;        ///< in use
  std::uint32_t alive = 0;          ///< a bit for each variant that is still on trial
  std::uint32_t round = 0;          ///< of trials; kKernelRounds: trials are over
  std::int64_t ranks = 0;           ///< max ranks so far that called this key in a step
  std::int64_t calls = 0;           ///< min calls of one of these ranks, in the last step that had any
  std::int64_t settled = 0;         ///< step in which trials ended
  std::int64_t waits = 0;           ///< steps from then until trials begin again
  double share_ns = 0;              ///< time in the last step, summed over ranks; 0 if none called it
  KernelStats since;                ///< times of the variant in use, since trials ended
  double settled_ns = 0;            ///< mean of the variant in use when trials ended
  std::vector<KernelTrial> trials;  ///< by variant

  bool operator==(const KernelState&) const = default;
};

inline constexpr std::uint32_t kKernelRounds = 3;

/// Variants are dropped whose shortest call (first round) or mean (second round) exceeds the best by more
/// than this factor.
inline constexpr double kFirstRoundLimit = 1.5;
inline constexpr double kSecondRoundLimit = 1.15;

/// A PlannerState is the whole state of a KernelPlanner. Another planner can continue from it.
struct PlannerState {
  KernelTable table;
  KernelMap<KernelState> keys;
  std::int64_t step = 0;      ///< steps done
  double elapsed_ns = 0;      ///< time of these steps
  double spent_ns = 0;        ///< part of the budget used, summed over ranks
  std::int64_t switches = 0;  ///< changes of a variant in use

  bool operator==(const PlannerState&) const = default;
};

/// A KernelPlanner chooses variants for all ranks. Only the leading process has one.
///
/// Learning takes each key through rounds of trials. In a round, a variant alternates with the one in use, so
/// changes in the machine's pace affect both alike. After 2 calls each, variants are dropped whose shortest
/// call takes over 1.5 times the best; after 8, those whose mean is over 1.15 times the best. After 32, the
/// best one comes into use if its interval lies below that of the variant it alternated with; if the
/// intervals overlap, nothing changes. A default that is not in use is always put on trial again, and comes
/// back if it is not slower. Trials restart when the time of the variant in use has changed by 15 % since
/// they ended. They also restart for variants that were not twice as slow, after 64 steps, then 128, ... 512.
/// A key that ranks call only once per step alternates between steps.
///
/// Trials are limited to those whose expected cost fits into `budget` and whose worst cost fits into `most`.
/// The worst case of a call is three deviations above the mean or, for an unknown variant, `unknown_most`
/// times the time of the one in use. A variant that is slower still can overdraw the budget once; trials then
/// pause until it is paid back. Because ranks wait for each other, the excess of all ranks is added up, as if
/// none of it overlapped.
class KernelPlanner {
 public:
  KernelPlanner(KernelMode mode, KernelTable table, const LearningRule& rule = {});
  /// Makes a planner that continues from a state.
  KernelPlanner(KernelMode mode, PlannerState state, const LearningRule& rule = {});

  KernelMode mode() const { return mode_; }
  const PlannerState& state() const { return state_; }

  /// Returns the variant in use.
  std::size_t choose(KernelKey key) const;
  /// Returns the choices of all ranks for the next step.
  KernelChoices next_step() const;
  /// Ends a step that took `elapsed_ns`, with the observations of each rank, always in the same order. Unless
  /// the mode is `learn`, only the step count changes.
  void end_step(std::span<const std::vector<KernelObservation>> ranks, double elapsed_ns);

 private:
  void add(const KernelObservation& seen);
  void advance(KernelKey key, KernelState& state);
  void end_round(KernelState& state) const;
  void settle(KernelKey key, KernelState& state, std::size_t variant);
  void begin_trials(KernelKey key, KernelState& state, bool all) const;
  KernelState first_state(KernelKey key) const;
  void plan_trials(KernelChoices& choices) const;
  /// An Excess is how much longer a call on trial takes than one of the variant in use.
  struct Excess {
    double expected = 0;
    double most = 0;
  };
  Excess excess_of(const KernelStats& own, double mean) const;

  KernelMode mode_;
  LearningRule rule_;
  PlannerState state_;
};

}  // namespace dflop
