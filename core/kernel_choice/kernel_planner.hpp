// The KernelPlanner decides before each step which variants all ranks of a run take, and learns from what
// they have seen when it is over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kernel_choice/kernel_choices.hpp"
#include "core/kernel_choice/kernel_table.hpp"
#include "core/names.hpp"

namespace dflop {

/// A KernelMode says who chooses.
enum class KernelMode : std::uint8_t {
  fixed,    ///< the default of each operation, always
  profile,  ///< a table that was measured before, which stays as it is: the same choices in every run
  learn,    ///< what steps teach, from that table on
};

template <>
inline constexpr NameTable<KernelMode, 3> kNames<KernelMode> = {
    {{KernelMode::fixed, "default"}, {KernelMode::profile, "profile"}, {KernelMode::learn, "learn"}}};

/// A LearningRule has the numbers by which a planner learns.
struct LearningRule {
  /// Of the elapsed time so much may go into calls on trial and into timing: a run in which no other variant
  /// is worth it is to reach 0.995 times the pace of one that does not learn.
  double budget = 0.005;
  /// The part is never more than this, were each call on trial as slow as it can be.
  double most = 0.01;
  double timing_ns = 60;  ///< that timing one call takes
  /// A variant of which nothing is known is expected to take so many times as long as the one in use, and at
  /// most.
  double unknown = 4;
  double unknown_most = 16;

  bool operator==(const LearningRule&) const = default;
};

/// A Trial is what two variants took that alternated: of what is on trial, and what is in use.
struct KernelTrial {
  KernelStats own;
  KernelStats used;
  double least_ns = 0;  ///< of `own`

  /// Returns how many times as long as the variant in use it takes; 1 where that is not known.
  double ratio() const { return used.count > 0 ? own.mean / used.mean : 1; }
  /// Returns that of its shortest call: one that was interrupted does not rule a variant out.
  double least_ratio() const { return used.count > 0 ? least_ns / used.mean : 1; }
  bool operator==(const KernelTrial&) const = default;
};

/// A KernelState is what a planner remembers of a key, beside its table.
struct KernelState {
  std::uint32_t variant = 0;        ///< in use
  std::uint32_t alive = 0;          ///< a bit for each variant that is still on trial
  std::uint32_t round = 0;          ///< of trials; kKernelRounds: they are over
  std::int64_t ranks = 0;           ///< that call it, at most so far
  std::int64_t calls = 0;           ///< of one of them in the last step that had any, at least
  std::int64_t settled = 0;         ///< step in which trials ended
  std::int64_t waits = 0;           ///< steps from then until they begin again
  double share_ns = 0;              ///< of the last step, all ranks together; 0 where none called it
  KernelStats since;                ///< of the variant in use, since trials ended
  double settled_ns = 0;            ///< its mean when they did
  std::vector<KernelTrial> trials;  ///< by variant

  bool operator==(const KernelState&) const = default;
};

inline constexpr std::uint32_t kKernelRounds = 3;

/// Variants whose shortest call, in a first round, or mean, in a second one, takes over so many times the
/// best are not worth more calls.
inline constexpr double kFirstRoundLimit = 1.5;
inline constexpr double kSecondRoundLimit = 1.15;

/// A PlannerState is all that a KernelPlanner knows: with it another one goes on as this one would.
struct PlannerState {
  KernelTable table;
  KernelMap<KernelState> keys;
  std::int64_t step = 0;      ///< done
  double elapsed_ns = 0;      ///< of these
  double spent_ns = 0;        ///< of the budget, all ranks together
  std::int64_t switches = 0;  ///< of a variant in use for another

  bool operator==(const PlannerState&) const = default;
};

/// A KernelPlanner is asked by the leading process alone.
///
/// Learning goes key by key through rounds of trials, in which a variant and the one in use alternate, so
/// that the machine's changes of pace touch both alike. After 2 calls each those go whose shortest call takes
/// over 1.5 times the best, after 8 those whose mean is over 1.15 times, and after 32 the best one is in use
/// from then on if its interval lies below that of the variant it alternated with; where they overlap nothing
/// changes. A default that is no longer in use is on trial each time, and comes back where it is not slower.
/// Trials begin again where the variant in use takes 15 % more or less than it did when they ended, and, of
/// variants that were not twice as slow, after 64 steps, then 128, ... 512. A key that ranks call once in a
/// step alternates over steps.
///
/// Trials are planned as far as the budget would pay for what they are expected to take, and as `most` would
/// were each as slow as it can be: three deviations above the mean, or `unknown_most` times the one in use. A
/// variant that turns out slower still overdraws the budget once, and trials rest until that is paid back. As
/// ranks wait for each other, the excess of all of them is added up, as if none of it ran at the same time.
class KernelPlanner {
 public:
  KernelPlanner(KernelMode mode, KernelTable table, const LearningRule& rule = {});
  /// Makes a planner that goes on from a state.
  KernelPlanner(KernelMode mode, PlannerState state, const LearningRule& rule = {});

  KernelMode mode() const { return mode_; }
  const PlannerState& state() const { return state_; }

  /// Returns the variant in use.
  std::size_t choose(KernelKey key) const;
  /// Returns what the ranks take in the next step.
  KernelChoices next_step() const;
  /// Ends a step, with what each rank has seen, always in the same order, and what it took. Without learning
  /// nothing changes but the count of steps.
  void end_step(std::span<const std::vector<KernelObservation>> ranks, double elapsed_ns);

 private:
  void add(const KernelObservation& seen);
  void advance(KernelKey key, KernelState& state);
  void end_round(KernelState& state) const;
  void settle(KernelKey key, KernelState& state, std::size_t variant);
  void begin_trials(KernelKey key, KernelState& state, bool all) const;
  KernelState first_state(KernelKey key) const;
  void plan_trials(KernelChoices& choices) const;
  /// Excess is by how much a call on trial takes longer than the one in use.
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
