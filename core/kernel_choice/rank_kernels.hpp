// RankKernels are one rank's side of choosing: asked before every call, told of those that were timed.
#pragma once

#include <vector>

#include "core/kernel_choice/kernel_choices.hpp"

namespace dflop {

/// RankKernels take choices and keep what calls took until the step is over. Neither choose() nor observe()
/// allocates, takes a lock or looks at a name, once a key is known. One thread uses them.
class RankKernels {
 public:
  /// Begins a step. The choices outlive it.
  void begin_step(const KernelChoices& choices);

  /// Returns what the rank's next call of the key takes.
  std::size_t choose(KernelKey key) {
    const std::size_t found = keys_.index_of(key);
    chosen_ = found < keys_.size() ? &keys_.value(found) : &add(key);
    const std::uint32_t call = chosen_->calls++;
    in_trials_ = call < 2 * chosen_->choice.trials;
    const std::uint32_t one_of = choices_->timed_one_of;
    timed_ = in_trials_ || (one_of > 0 && (call + choices_->step) % one_of == 0);
    return chosen_->choice.of_call(call);
  }
  /// Returns whether the call for which choose() was asked last is to be timed.
  bool is_timed() const { return timed_; }
  /// Tells what that call took, with the variant that it was given; `scale` brings it to the middle of its
  /// key's buckets.
  void observe(std::size_t variant, double ns, double scale);

  /// Ends the step and returns what was seen of the keys that were called, in the order in which this rank
  /// came to know them.
  std::vector<KernelObservation> end_step();

 private:
  struct Known {
    KernelChoice choice;
    std::uint32_t calls = 0;
    KernelObservation seen = {};
  };

  Known& add(KernelKey key);

  const KernelChoices* choices_ = nullptr;
  KernelMap<Known> keys_;
  Known* chosen_ = nullptr;
  bool timed_ = false;
  bool in_trials_ = false;
};

}  // namespace dflop
