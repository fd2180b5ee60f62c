#include "core/kernel_choice/rank_kernels.hpp"

#include <algorithm>

namespace dflop {

void RankKernels::begin_step(const KernelChoices& choices) {
  choices_ = &choices;
  for (const KernelKey key : choices.by_key.keys()) add(key);
  for (std::size_t i = 0; i < keys_.size(); ++i) keys_.value(i) = {.choice = choices.choice(keys_.keys()[i])};
}

std::size_t RankKernels::add(KernelKey key) {
  return keys_.add(key, {.choice = choices_->choice(key)});
}

void RankKernels::observe(const ChosenKernel& chosen, double ns, double scale) {
  KernelObservation& seen = keys_.value(chosen.index).seen;
  const KernelChoice& choice = keys_.value(chosen.index).choice;
  ++seen.timed;
  if (chosen.in_trials && chosen.variant == choice.tried) {
    seen.trials.add(ns * scale);
    seen.least_trial_ns = seen.trials.count == 1 ? ns * scale : std::min(seen.least_trial_ns, ns * scale);
    // A longer call was interrupted, for example by another process: no variant is this slow.
    constexpr double kSlowest = 256;
    const double usual = choice.mean_ns / scale;
    if (usual > 0 && ns > usual) seen.excess_ns += std::min(ns, kSlowest * usual) - usual;
    return;
  }
  // An interrupted call says little about the variant, so it counts at most as a few usual ones.
  constexpr double kMostMeans = 4;
  const double time = choice.mean_ns > 0 ? std::min(ns * scale, kMostMeans * choice.mean_ns) : ns * scale;
  seen.used.add(time);
  if (chosen.in_trials) seen.in_trials.add(time);
}

std::vector<KernelObservation> RankKernels::end_step() {
  std::vector<KernelObservation> seen;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    Known& known = keys_.value(i);
    if (known.calls == 0) continue;
    known.seen.key = keys_.keys()[i].bits();
    known.seen.calls = known.calls;
    known.seen.variant = known.choice.variant;
    known.seen.tried = known.choice.tried;
    seen.push_back(known.seen);
  }
  return seen;
}

}  // namespace dflop
