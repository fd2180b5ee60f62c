#include "backend/rank_guide.hpp"

namespace dflop {

std::size_t RankGuide::before(const KernelCall& call, std::size_t variants) {
  if (call.tokens == 0) return 0;  // there is nothing to compute, nor to learn
  const std::size_t variant = kernels_.choose(KernelKey(call).with_dtype(dtype_));
  if (kernels_.is_timed()) began_ = Clock::now();
  return variant < variants ? variant : 0;
}

void RankGuide::after(const KernelCall& call, std::size_t variant) {
  if (call.tokens == 0 || !kernels_.is_timed()) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - began_;
  const double scale = work_of(KernelKey(call).call()) / work_of(call);
  kernels_.observe(variant, took.count(), scale);
}

}  // namespace dflop
