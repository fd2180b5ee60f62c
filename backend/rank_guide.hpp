// A RankGuide lets the calls of one rank take what was chosen for the step, and times some of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "core/kernel_choice/rank_kernels.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A RankGuide asks RankKernels. It times calls on the host's clock, which says what they take on a device
/// that is done when a call returns: choices for other devices have no trials and time nothing. One call is
/// open at a time, as no operation calls another; one that throws is never closed, and the next takes its
/// place.
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

  std::uint8_t dtype_;
  RankKernels kernels_;
  ChosenKernel open_;  // the call that has not returned
  Clock::time_point began_;
};

}  // namespace dflop
