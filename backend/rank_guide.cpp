#include "backend/rank_guide.hpp"

namespace dflop {

std::size_t RankGuide::before(const KernelCall& call, std::size_t variants) {
  open_ = {};
  if (call.tokens == 0) return 0;  // nothing to compute or to learn
  KernelKey key(call);
  key.dtype = dtype_;
  open_ = kernels_.choose(key);
  if (open_.timed) began_ = Clock::now();
  return open_.variant < variants ? open_.variant : 0;
}

void RankGuide::after(const KernelCall& call, std::size_t /*variant*/) {
  if (!open_.timed) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - began_;
  RankKernels::observe(open_, took.count(), work_of(KernelKey(call)) / work_of(call));
}

}  // namespace dflop
