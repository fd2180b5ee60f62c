#include "core/kernel_choice/kernel_planner.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace dflop {
namespace {

constexpr std::int64_t kRoundCalls[kKernelRounds] = {2, 8, 32};
constexpr double kRoundLimit[kKernelRounds] = {kFirstRoundLimit, kSecondRoundLimit,
                                               std::numeric_limits<double>::infinity()};
constexpr double kHopeless = 3;           // times the one in use: one call is enough to drop it
constexpr std::int64_t kSurelyCalls = 8;  // min calls of the last remaining variant before it is used
constexpr std::int64_t kMostTrials = 4;   // max, of a rank's calls in a step
constexpr std::uint32_t kTimedOneOf = 16;
constexpr std::int64_t kFirstWait = 64;  // steps
constexpr std::int64_t kLongestWait = 512;
constexpr double kMuchSlower = 2;
constexpr double kDrift = 0.15;
constexpr std::int64_t kDriftCalls = 16;

std::uint32_t bit_of(std::size_t variant) {
  return std::uint32_t{1} << variant;
}

/// Returns whether calls of the variant in use must follow before the next trial call.
bool lacks_used(const KernelTrial& trial) {
  return trial.used.count < trial.own.count;
}

/// Returns how many calls of each side a trial has.
std::int64_t calls_of(const KernelTrial& trial) {
  return std::min(trial.own.count, trial.used.count);
}

/// Returns the next variant to try: one whose turn is not over, otherwise the one tried least; none if no
/// variant is on trial.
std::optional<std::size_t> next_on_trial(const KernelState& state) {
  std::optional<std::size_t> next;
  for (std::size_t v = 0; v < state.trials.size(); ++v) {
    if ((state.alive & bit_of(v)) == 0) continue;
    if (lacks_used(state.trials[v])) return v;
    if (!next || state.trials[v].own.count < state.trials[*next].own.count) next = v;
  }
  return next;
}

bool is_surely_faster(const KernelTrial& trial) {
  return trial.own.count >= kSurelyCalls && trial.own.high() < trial.used.low();
}

}  // namespace

KernelPlanner::KernelPlanner(KernelMode mode, KernelTable table, const LearningRule& rule)
    : mode_(mode), rule_(rule) {
  state_.table = std::move(table);
}

KernelPlanner::KernelPlanner(KernelMode mode, PlannerState state, const LearningRule& rule)
    : mode_(mode), rule_(rule), state_(std::move(state)) {}

std::size_t KernelPlanner::choose(KernelKey key) const {
  if (mode_ == KernelMode::fixed) return 0;
  if (mode_ == KernelMode::learn) {
    if (const KernelState* known = state_.keys.find(key)) return known->variant;
  }
  return state_.table.choose(key);
}

KernelChoices KernelPlanner::next_step() const {
  KernelChoices choices;
  choices.step = static_cast<std::uint64_t>(state_.step);
  if (mode_ == KernelMode::fixed) return choices;
  for (const KernelKey key : state_.table.entries().keys()) {
    KernelChoice choice{.variant = static_cast<std::uint16_t>(choose(key))};
    const KernelTable::Entry& entry = *state_.table.find(key);
    choice.measured = KernelTable::is_measured(entry);
    choice.mean_ns = entry[choice.variant].mean;
    choices.by_key.add(key, choice);
  }
  if (mode_ != KernelMode::learn) return choices;
  // Timing counts towards the budget, too. It pauses if calls are so short that it would exceed the budget.
  if (state_.spent_ns <= rule_.budget * state_.elapsed_ns) choices.timed_one_of = kTimedOneOf;
  plan_trials(choices);
  return choices;
}

/// Returns how much longer one call of a variant on trial takes than `mean`, the mean of the variant in use.
/// `own` has the variant's known durations.
KernelPlanner::Excess KernelPlanner::excess_of(const KernelStats& own, double mean) const {
  if (own.count == 0) return {(rule_.unknown - 1) * mean, (rule_.unknown_most - 1) * mean};
  // The deviation of a few calls says little, so assume that they scatter by half of the mean.
  const double few = own.count < kSurelyCalls ? 0.5 * own.mean : 0;
  const double deviation = std::max(std::sqrt(own.variance), few / 3);
  const double slower = own.mean - mean;
  return {std::max(0.0, slower) + 0.5 * deviation, std::max(0.0, slower + 3 * deviation)};
}

/// Gives trials to keys, those with the largest part of a step first, as far as the budget permits.
void KernelPlanner::plan_trials(KernelChoices& choices) const {
  double left = rule_.budget * state_.elapsed_ns - state_.spent_ns;
  double most_left = rule_.most * state_.elapsed_ns - state_.spent_ns;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < state_.keys.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return state_.keys.value(a).share_ns > state_.keys.value(b).share_ns;
  });
  for (const std::size_t i : order) {
    const KernelState& state = state_.keys.value(i);
    const std::optional<std::size_t> tried = next_on_trial(state);
    KernelChoice* choice = choices.by_key.find(state_.keys.keys()[i]);
    if (state.round == kKernelRounds || !tried || choice == nullptr || choice->mean_ns <= 0) continue;
    const KernelTrial& trial = state.trials[*tried];
    const bool used_first = lacks_used(trial);
    const KernelStats& known =
        trial.own.count > 0 ? trial.own : (*state_.table.find(state_.keys.keys()[i]))[*tried];
    const Excess excess = used_first ? Excess{} : excess_of(known, choice->mean_ns);
    const auto ranks = static_cast<double>(state.ranks);
    const double call = ranks * (excess.expected + 2 * rule_.timing_ns);
    const double most_call = ranks * (excess.most + 2 * rule_.timing_ns);
    // A variant without measurements is tried only once, and so is one whose key a step calls only once or
    // so.
    const bool once = used_first || trial.own.count == 0 || state.calls < 4;
    const std::int64_t wanted =
        once ? 1 : std::min({kRoundCalls[state.round] - trial.own.count, kMostTrials, state.calls / 2});
    const double affordable = std::floor(std::min(left / call, most_left / most_call));
    const auto trials = std::min(static_cast<double>(wanted), affordable);
    if (trials < 1) continue;
    choice->trials = static_cast<std::uint16_t>(trials);
    choice->tried = static_cast<std::uint16_t>(*tried);
    choice->first = used_first ? 1 : 0;
    left -= choice->trials * call;
    most_left -= choice->trials * most_call;
  }
}

KernelState KernelPlanner::first_state(KernelKey key) const {
  KernelState state;
  state.variant = static_cast<std::uint32_t>(state_.table.choose(key));
  state.trials.resize(state_.table.names(key.operation()).size());
  state.waits = kFirstWait / 2;  // settling doubles it
  begin_trials(key, state, true);
  return state;
}

/// Puts variants on trial: the default, and those not known to be much slower than the one in use. With
/// `all`, also those up to as slow as an unknown variant can be.
void KernelPlanner::begin_trials(KernelKey key, KernelState& state, bool all) const {
  const KernelTable::Entry* entry = state_.table.find(key);
  const double limit = all ? rule_.unknown_most : kMuchSlower;
  state.alive = 0;
  for (std::size_t v = 0; v < state.trials.size(); ++v) {
    if (v == state.variant) continue;
    const bool known =
        entry != nullptr && (*entry)[v].count > (all ? 1 : 0) && (*entry)[state.variant].count > 0;
    const bool slow = v != 0 && known && (*entry)[v].mean > limit * (*entry)[state.variant].mean;
    if (!slow) state.alive |= bit_of(v);
  }
  state.round = state.alive == 0 ? kKernelRounds : 0;
  for (KernelTrial& trial : state.trials) trial = {};
}

void KernelPlanner::end_step(std::span<const std::vector<KernelObservation>> ranks, double elapsed_ns) {
  ++state_.step;
  if (mode_ != KernelMode::learn) return;
  state_.elapsed_ns += elapsed_ns;
  // Every rank takes part in trials, so the calls of a step are the min over the ranks that have any.
  KernelMap<KernelState> seen_now;
  for (const std::vector<KernelObservation>& rank : ranks) {
    for (const KernelObservation& seen : rank) {
      const KernelKey key = KernelKey::of_bits(seen.key);
      add(seen);
      KernelState& now = seen_now.value(seen_now.add(key, {}));
      now.calls = now.ranks == 0 ? seen.calls : std::min(now.calls, seen.calls);
      ++now.ranks;
      now.share_ns += static_cast<double>(seen.calls) * state_.table.entry(key)[seen.variant].mean;
    }
  }
  for (std::size_t i = 0; i < state_.keys.size(); ++i) state_.keys.value(i).share_ns = 0;
  for (std::size_t i = 0; i < seen_now.size(); ++i) {
    const KernelKey key = seen_now.keys()[i];
    const KernelState& now = seen_now.value(i);
    KernelState& state = *state_.keys.find(key);
    state.ranks = std::max(state.ranks, now.ranks);
    state.calls = now.calls;
    state.share_ns = now.share_ns;
    advance(key, state);
  }
}

/// Adds one rank's observation of one key.
void KernelPlanner::add(const KernelObservation& seen) {
  const KernelKey key = KernelKey::of_bits(seen.key);
  KernelTable::Entry& entry = state_.table.entry(key);
  std::size_t place = state_.keys.index_of(key);
  if (place == state_.keys.size()) place = state_.keys.add(key, first_state(key));
  KernelState& state = state_.keys.value(place);
  state_.spent_ns += static_cast<double>(seen.timed) * rule_.timing_ns;
  entry[seen.variant].merge(seen.used);
  if (seen.variant == state.variant) state.since.merge(seen.used);
  if (seen.trials.count == 0 && seen.in_trials.count == 0) return;
  KernelTrial& trial = state.trials[seen.tried];
  trial.used.merge(seen.in_trials);
  if (seen.trials.count == 0) return;
  entry[seen.tried].merge(seen.trials);
  trial.least_ns = trial.own.count > 0 ? std::min(trial.least_ns, seen.least_trial_ns) : seen.least_trial_ns;
  // A call does not take four times as long as the shortest of its key and variant, unless it is interrupted.
  constexpr double kInterrupted = 4;
  const double slowest = kInterrupted * trial.least_ns - entry[seen.variant].mean;
  state_.spent_ns +=
      std::min(seen.excess_ns, static_cast<double>(seen.trials.count) * std::max(0.0, slowest));
  trial.own.merge(seen.trials);
}

/// Updates one key after a step.
void KernelPlanner::advance(KernelKey key, KernelState& state) {
  if (state.round == kKernelRounds) {
    if (state.trials.size() < 2) return;
    const KernelStats& since = state.since;
    const double moved = std::abs(since.mean - state.settled_ns) - since.half_width();
    const bool drifted = since.count >= kDriftCalls && moved > kDrift * state.settled_ns;
    if (drifted) state.waits = kFirstWait / 2;
    if (!drifted && state_.step < state.settled + state.waits) return;
    begin_trials(key, state, drifted);
    if (state.alive == 0) settle(key, state, state.variant);
    return;
  }
  for (std::size_t v = 0; v < state.trials.size(); ++v) {
    if (state.trials[v].own.count > 0 && state.trials[v].least_ratio() > kHopeless) state.alive &= ~bit_of(v);
  }
  while (state.alive != 0 && state.round < kKernelRounds) {
    const std::size_t left = *next_on_trial(state);
    if (std::has_single_bit(state.alive) && is_surely_faster(state.trials[left])) {
      return settle(key, state, left);
    }
    if (calls_of(state.trials[left]) < kRoundCalls[state.round]) return;
    end_round(state);
    ++state.round;
  }
  std::size_t best = state.variant;
  for (std::size_t v = 0; v < state.trials.size(); ++v) {
    if ((state.alive & bit_of(v)) == 0 || !is_surely_faster(state.trials[v])) continue;
    if (best == state.variant || state.trials[v].ratio() < state.trials[best].ratio()) best = v;
  }
  // Return to the default unless it is slower.
  if (best == state.variant && best != 0 && state.trials[0].own.count >= kSurelyCalls &&
      state.trials[0].ratio() <= 1) {
    best = 0;
  }
  settle(key, state, best);
}

/// Drops the variants that exceed the round's limit.
void KernelPlanner::end_round(KernelState& state) const {
  const auto ratio = [&](std::size_t v) {
    return state.round == 0 ? state.trials[v].least_ratio() : state.trials[v].ratio();
  };
  double best = 1;  // the ratio of the variant in use
  for (std::size_t v = 0; v < state.trials.size(); ++v) {
    if ((state.alive & bit_of(v)) != 0) best = std::min(best, ratio(v));
  }
  for (std::size_t v = 0; v < state.trials.size(); ++v) {
    if (ratio(v) > kRoundLimit[state.round] * best) state.alive &= ~bit_of(v);
  }
}

void KernelPlanner::settle(KernelKey key, KernelState& state, std::size_t variant) {
  const bool other = variant != state.variant;
  if (other) ++state_.switches;
  state.waits = other ? kFirstWait : std::min(2 * state.waits, kLongestWait);
  const KernelTrial& trial = state.trials[variant];
  state.settled_ns = trial.own.count > 0 ? trial.own.mean : state_.table.entry(key)[variant].mean;
  state.variant = static_cast<std::uint32_t>(variant);
  state.alive = 0;
  state.round = kKernelRounds;
  state.settled = state_.step;
  state.since = {};
}

}  // namespace dflop
