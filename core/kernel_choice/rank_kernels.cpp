#include "core/kernel_choice/rank_kernels.hpp"

#include <algorithm>

namespace dflop {

void RankKernels::begin_step(const KernelChoices& choices) {
  choices_ = &choices;
  for (auto& [key, known] : keys_) known = {choices.choice(key)};
}

void RankKernels::observe(const Chosen& chosen, double ns, double scale) {
  KernelObservation& seen = chosen.known->seen;
  const KernelChoice& choice = chosen.known->choice;
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
  constexpr double kMaxMeans = 4;
  const double time = choice.mean_ns > 0 ? std::min(ns * scale, kMaxMeans * choice.mean_ns) : ns * scale;
  seen.used.add(time);
  if (chosen.in_trials) seen.in_trials.add(time);
}

std::vector<KernelObservation> RankKernels::end_step() const {
  std::vector<KernelObservation> all;
  for (const auto& [key, known] : keys_) {
    if (known.calls == 0) continue;
    KernelObservation& seen = all.emplace_back(known.seen);
    seen.key = key;
    seen.calls = known.calls;
    seen.variant = known.choice.variant;
    seen.tried = known.choice.tried;
  }
  return all;
}

}  // namespace dflop
