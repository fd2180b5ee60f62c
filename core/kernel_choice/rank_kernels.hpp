// RankKernels are one rank's side of choosing: asked before every call, told of those that were timed.
#pragma once

#include <vector>

#include "core/kernel_choice/kernel_choices.hpp"

namespace dflop {

/// A ChosenKernel is what one call takes; observe() wants it back where the call was to be timed.
struct ChosenKernel {
  std::uint32_t index = 0;  ///< of its key
  std::uint16_t variant = 0;
  bool timed = false;
  bool in_trials = false;
};

/// RankKernels take choices and keep what calls took until the step is over. Neither choose() nor observe()
/// allocates, takes a lock or looks at a name, once a key is known. One thread uses them.
class RankKernels {
 public:
  /// Begins a step. The choices outlive it.
  void begin_step(const KernelChoices& choices);

  /// Returns what the rank's next call of the key takes.
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
  /// Tells what a call took; `scale` brings it to the middle of its key's buckets.
  void observe(const ChosenKernel& chosen, double ns, double scale);

  /// Ends the step and returns what was seen of the keys that were called, in the order in which this rank
  /// came to know them.
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
