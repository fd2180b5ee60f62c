// RankKernels are one rank's side of kernel choice. They name the variant before each call and record the
// time of timed calls.
#pragma once

#include <vector>

#include "core/kernel_choice/kernel_choices.hpp"

namespace dflop {

/// A ChosenKernel is the variant for one call. Pass it to observe() if the call was timed.
struct ChosenKernel {
  std::uint32_t index = 0;  ///< index of its key
  std::uint16_t variant = 0;
  bool timed = false;
  bool in_trials = false;
};

/// RankKernels apply the choices of a step and collect its measurements. For a known key, choose() and
/// observe() do not allocate, lock or look at names. Only one thread may use an object.
class RankKernels {
 public:
  /// Begins a step. The choices must outlive it.
  void begin_step(const KernelChoices& choices);

  /// Returns the variant for the rank's next call of the key.
  ChosenKernel choose(KernelKey key) {
    std::size_t index = keys_.index_of(key);
    if (index == keys_.size()) index = add(key);
    Known& known = keys_.value(index);
    const std::uint32_t call = known.calls++;
    const bool in_trials = call < 2U * known.choice.trials;
    const std::uint32_t one_of = choices_->timed_one_of;
    const bool timed = in_trials || (one_of > 0 && (call + choices_->step) % one_of == 0);
    return {static_cast<std::uint32_t>(index), static_cast<std::uint16_t>(known.choice.of_call(call)), timed,
            in_trials};
  }
  /// Records a call's time; `scale` converts it to the middle of its key's buckets.
  void observe(const ChosenKernel& chosen, double ns, double scale);

  /// Ends the step and returns the observations of all keys that were called, in the order in which this rank
  /// first saw the keys.
  std::vector<KernelObservation> end_step();

 private:
  struct Known {
    KernelChoice choice;
    std::uint32_t calls = 0;
    KernelObservation seen = {};
  };

  std::size_t add(KernelKey key);

  const KernelChoices* choices_ = nullptr;
  KernelMap<Known> keys_;
};

}  // namespace dflop
