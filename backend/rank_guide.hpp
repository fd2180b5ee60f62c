// A RankGuide lets the calls of one rank take what was chosen for the step, and times some of them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "core/kernel_choice/rank_kernels.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A RankGuide asks RankKernels. It times calls on the host's clock, which says what they take on a device
/// that is done when a call returns: choices for other devices have no trials and time nothing. Operations
/// may call others, which are guided, too.
class RankGuide final : public KernelGuide {
 public:
  /// `dtype`: of the rank's kernels, which calls do not tell.
  explicit RankGuide(DType dtype) : dtype_(static_cast<std::uint8_t>(dtype)) {}

  /// Begins a step. The choices outlive it.
  void begin_step(const KernelChoices& choices) { kernels_.begin_step(choices); }
  std::vector<KernelObservation> end_step() { return kernels_.end_step(); }

  std::size_t before(const KernelCall& call, std::size_t variants) override;
  void after(const KernelCall& call, std::size_t variant) override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Open {
    ChosenKernel chosen;
    Clock::time_point began;
  };

  std::uint8_t dtype_;
  RankKernels kernels_;
  std::array<Open, 8> open_;  // calls that have not returned, one within the other
  std::size_t depth_ = 0;
};

}  // namespace dflop
