// RankKernels are one rank's side of kernel choice. They name the variant before each call and record the
// time of timed calls.
#pragma once

#include <unordered_map>
#include <vector>

#include "core/kernel_choice/kernel_choices.hpp"

namespace dflop {

/// RankKernels apply the choices of a step and collect its measurements. For a known key, choose() and
/// observe() do not allocate, lock or look up names. Only one thread may use an object.
class RankKernels {
  struct Known {
    KernelChoice choice;
    std::uint32_t calls = 0;
    KernelObservation seen = {};
  };

 public:
  /// A Chosen is the variant for one call. Pass it to observe() if the call was timed.
  struct Chosen {
    Known* known = nullptr;
    std::uint16_t variant = 0;
    bool timed = false;
    bool in_trials = false;
  };

  /// Begins a step. The choices must outlive it.
  void begin_step(const KernelChoices& choices);

  /// Returns the variant for the rank's next call of the key.
  Chosen choose(const KernelKey& key) {
    const auto found = keys_.find(key);
    Known& known = found != keys_.end() ? found->second : keys_[key] = {choices_->choice(key)};
    const std::uint32_t call = known.calls++;
    const bool in_trials = call < 2U * known.choice.trials;
    const std::uint32_t one_of = choices_->timed_one_of;
    const bool timed = in_trials || (one_of > 0 && (call + choices_->step) % one_of == 0);
    return {&known, static_cast<std::uint16_t>(known.choice.of_call(call)), timed, in_trials};
  }
  /// Records a call's time; `scale` converts it to the middle of its key's buckets.
  static void observe(const Chosen& chosen, double ns, double scale);

  /// Ends the step and returns the observations of all keys that were called.
  std::vector<KernelObservation> end_step() const;

 private:
  const KernelChoices* choices_ = nullptr;
  std::unordered_map<KernelKey, Known, KernelKeyHash> keys_;
};

}  // namespace dflop
