// A RankGuide makes one rank's kernel calls use the variants chosen for the step, and times calls that try a
// variant.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "core/kernel_choice/rank_kernels.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A RankGuide gets its choices from RankKernels. It times calls on the host's clock. Such times are correct
/// only on devices that finish the work before the call returns; on other devices KernelChoices contain no
/// trials, so no call is timed. Only one call is in progress at a time, because no operation calls another.
/// If a call throws, after() is not called for it, and the next call replaces it.
class RankGuide final : public KernelGuide {
 public:
  /// `dtype` is the precision of the rank's kernels; KernelCall does not contain it.
  explicit RankGuide(DType dtype) : dtype_(dtype) {}

  /// Begins a step. `choices` must outlive the step.
  void begin_step(const KernelChoices& choices) { kernels_.begin_step(choices); }
  std::vector<KernelObservation> end_step() const { return kernels_.end_step(); }

  std::size_t before(const KernelCall& call, std::size_t variants) override;
  void after(const KernelCall& call, std::size_t variant) override;

 private:
  using Clock = std::chrono::steady_clock;

  DType dtype_;
  RankKernels kernels_;
  RankKernels::Chosen open_;  // the call in progress
  Clock::time_point began_;
};

}  // namespace dflop
