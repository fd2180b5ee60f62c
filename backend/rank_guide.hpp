// A RankGuide selects, for each kernel call of one rank, the variant chosen for the step, and times some of
// the calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "core/kernel_choice/rank_kernels.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A RankGuide gets its choices from RankKernels. It times calls on the host's clock, which is correct only
/// on devices that finish the work before the call returns. Choices for other devices contain no trials, so
/// nothing is timed on them. Only one call is open at a time, because no operation calls another. A call that
/// throws is never closed with after(); the next call replaces it.
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
