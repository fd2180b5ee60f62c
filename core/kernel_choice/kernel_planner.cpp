#include "core/kernel_choice/kernel_planner.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace dflop {
namespace {

constexpr std::int64_t kRoundCalls[] = {2, 8, 32};
constexpr double kRoundLimit[] = {kFirstRoundLimit, kSecondRoundLimit,
                                  std::numeric_limits<double>::infinity()};
constexpr double kHopeless = 3;           // times the one in use: one call is enough to drop it
constexpr std::int64_t kSurelyCalls = 8;  // min calls of the last remaining variant before it is used
constexpr std::int64_t kMaxTrials = 4;    // max, of a rank's calls in a step
constexpr std::uint32_t kTimedOneOf = 16;
constexpr std::int64_t kWait = 64;  // steps between trials
constexpr double kMuchSlower = 2;
constexpr double kTimingNs = 60;  // cost of timing one call
constexpr double kUnknown = 4;    // expected time of an unknown variant, in times of the variant in use
constexpr double kUnknownMax = 16;

std::uint32_t bit_of(std::size_t variant) {
  return std::uint32_t{1} << variant;
}

/// Returns whether calls of the variant in use must follow before the next trial call.
bool lacks_used(const KernelTrial& trial) {
  return trial.used.count < trial.own.count;
}

/// Returns the next variant to try: one that still lacks calls of the variant in use, otherwise the one tried
/// least; nullopt if no variant is on trial.
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

/// An Excess is how much longer a call on trial takes than one of the variant in use.
struct Excess {
  double expected = 0;
  double most = 0;
};

/// Returns the excess over `mean` of a variant with these durations.
Excess excess_of(const KernelStats& own, double mean) {
  if (own.count == 0) return {(kUnknown - 1) * mean, (kUnknownMax - 1) * mean};
  // The deviation of a few calls says little, so assume that they scatter by half of the mean.
  const double few = own.count < kSurelyCalls ? 0.5 * own.mean : 0;
  const double deviation = std::max(std::sqrt(own.variance), few / 3);
  const double slower = own.mean - mean;
  return {std::max(0.0, slower) + 0.5 * deviation, std::max(0.0, slower + 3 * deviation)};
}

/// Drops the variants that exceed the round's limit.
void end_round(KernelState& state) {
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
  ++state.round;
}

}  // namespace

std::size_t KernelPlanner::choose(const KernelKey& key) const {
  if (mode_ == KernelMode::fixed) return 0;
  const auto known = states_.find(key);
  return known != states_.end() ? known->second.variant : table_.choose(key);
}

KernelChoices KernelPlanner::next_step() const {
  KernelChoices choices;
  choices.step = static_cast<std::uint64_t>(step_);
  if (mode_ == KernelMode::fixed) return choices;
  for (const auto& [key, entry] : table_.entries()) {
    KernelChoice& choice = choices.by_key[key];
    choice.variant = static_cast<std::uint16_t>(choose(key));
    choice.measured = KernelTable::is_measured(entry);
    choice.mean_ns = entry[choice.variant].mean;
  }
  if (mode_ != KernelMode::learn) return choices;
  // Timing counts toward the budget, too. It pauses if calls are so short that it would exceed the budget.
  if (spent_ns_ <= kLearningBudget * elapsed_ns_) choices.timed_one_of = kTimedOneOf;
  plan_trials(choices);
  return choices;
}

/// Gives trials to keys, those with the largest part of a step first, as far as the budget permits.
void KernelPlanner::plan_trials(KernelChoices& choices) const {
  double left = kLearningBudget * elapsed_ns_ - spent_ns_;
  double most_left = kMaxLearningBudget * elapsed_ns_ - spent_ns_;
  std::multimap<double, KernelKey, std::greater<>> by_share;
  for (const auto& [key, state] : states_) {
    const double mean = choices.by_key.at(key).mean_ns;
    if (mean > 0) by_share.emplace(mean * static_cast<double>(state.calls * state.ranks), key);
  }
  for (const auto& [share, key] : by_share) {
    const KernelState& state = states_.at(key);
    const std::optional<std::size_t> tried = next_on_trial(state);
    if (!tried) continue;
    KernelChoice& choice = choices.by_key.at(key);
    const KernelTrial& trial = state.trials[*tried];
    const bool used_first = lacks_used(trial);
    const KernelStats& known = trial.own.count > 0 ? trial.own : table_.entries().at(key)[*tried];
    const Excess excess = used_first ? Excess{} : excess_of(known, choice.mean_ns);
    const auto ranks = static_cast<double>(state.ranks);
    const double call = ranks * (excess.expected + 2 * kTimingNs);
    const double most_call = ranks * (excess.most + 2 * kTimingNs);
    // A variant without measurements is tried only once in a step. So is a variant whose key had fewer than 4
    // calls in the last step.
    const bool once = used_first || trial.own.count == 0 || state.calls < 4;
    const std::int64_t wanted =
        once ? 1 : std::min({kRoundCalls[state.round] - trial.own.count, kMaxTrials, state.calls / 2});
    const double affordable = std::floor(std::min(left / call, most_left / most_call));
    const auto trials = std::min(static_cast<double>(wanted), affordable);
    if (trials < 1) continue;
    choice.trials = static_cast<std::uint16_t>(trials);
    choice.tried = static_cast<std::uint16_t>(*tried);
    choice.first = used_first ? 1 : 0;
    left -= choice.trials * call;
    most_left -= choice.trials * most_call;
  }
}

/// Puts the default on trial, and variants not known to take over `slowest` times as long as the one in use.
void KernelPlanner::begin_trials(const KernelKey& key, KernelState& state, double slowest) const {
  const KernelTable::Entry& entry = table_.entries().at(key);
  const KernelStats& used = entry[state.variant];
  state.alive = 0;
  state.round = 0;
  state.trials.assign(entry.size(), {});
  for (std::size_t v = 0; v < entry.size(); ++v) {
    const bool slow = entry[v].count > 1 && used.count > 0 && entry[v].mean > slowest * used.mean;
    if (v != state.variant && (v == 0 || !slow)) state.alive |= bit_of(v);
  }
}

void KernelPlanner::end_step(std::span<const std::vector<KernelObservation>> ranks, double elapsed_ns) {
  ++step_;
  if (mode_ != KernelMode::learn) return;
  elapsed_ns_ += elapsed_ns;
  for (auto& [key, state] : states_) state.calls = 0;
  std::map<KernelKey, std::int64_t> callers;
  for (const std::vector<KernelObservation>& rank : ranks) {
    for (const KernelObservation& seen : rank) {
      add(seen);
      // Every rank takes part in trials, so the calls of a step are the min over the ranks that have any.
      std::int64_t& calls = states_.at(seen.key).calls;
      calls = ++callers[seen.key] == 1 ? seen.calls : std::min(calls, seen.calls);
    }
  }
  for (const auto& [key, of_key] : callers) {
    KernelState& state = states_.at(key);
    state.ranks = std::max(state.ranks, of_key);
    advance(key, state);
  }
}

/// Adds one rank's observation of one key.
void KernelPlanner::add(const KernelObservation& seen) {
  KernelTable::Entry& entry = table_.entry(seen.key);
  const auto [place, is_new] = states_.try_emplace(seen.key);
  KernelState& state = place->second;
  if (is_new) {
    state.variant = table_.choose(seen.key);
    begin_trials(seen.key, state, kUnknownMax);
  }
  spent_ns_ += static_cast<double>(seen.timed) * kTimingNs;
  entry[seen.variant].merge(seen.used);
  KernelTrial& trial = state.trials[seen.tried];
  trial.used.merge(seen.in_trials);
  if (seen.trials.count == 0) return;
  entry[seen.tried].merge(seen.trials);
  trial.least_ns = trial.own.count > 0 ? std::min(trial.least_ns, seen.least_trial_ns) : seen.least_trial_ns;
  // A call does not take four times as long as the shortest of its key and variant, unless it is interrupted.
  constexpr double kInterrupted = 4;
  const double slowest = kInterrupted * trial.least_ns - entry[seen.variant].mean;
  spent_ns_ += std::min(seen.excess_ns, static_cast<double>(seen.trials.count) * std::max(0.0, slowest));
  trial.own.merge(seen.trials);
}

/// Updates one key after a step.
void KernelPlanner::advance(const KernelKey& key, KernelState& state) {
  if (state.alive == 0) {
    if (step_ >= state.next_trials) begin_trials(key, state, kMuchSlower);
    return;
  }
  for (std::size_t v = 0; v < state.trials.size(); ++v) {
    if (state.trials[v].own.count > 0 && state.trials[v].least_ratio() > kHopeless) state.alive &= ~bit_of(v);
  }
  while (state.alive != 0 && state.round < std::size(kRoundCalls)) {
    const std::size_t left = *next_on_trial(state);
    const KernelTrial& trial = state.trials[left];
    if (std::has_single_bit(state.alive) && is_surely_faster(trial)) return settle(state, left);
    if (std::min(trial.own.count, trial.used.count) < kRoundCalls[state.round]) return;
    end_round(state);
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
  settle(state, best);
}

void KernelPlanner::settle(KernelState& state, std::size_t variant) const {
  state.variant = variant;
  state.alive = 0;
  state.next_trials = step_ + kWait;
}

}  // namespace dflop
