#include "backend/rank_guide.hpp"

#include "core/error.hpp"

namespace dflop {

std::size_t RankGuide::before(const KernelCall& call, std::size_t variants) {
  if (depth_ == open_.size()) throw Error(ErrorKind::internal, "kernels call each other without end");
  Open& open = open_[depth_++];
  open.chosen = {};
  if (call.tokens == 0) return 0;  // there is nothing to compute, nor to learn
  open.chosen = kernels_.choose(KernelKey(call).with_dtype(dtype_));
  if (open.chosen.timed) open.began = Clock::now();
  return open.chosen.variant < variants ? open.chosen.variant : 0;
}

void RankGuide::after(const KernelCall& call, std::size_t /*variant*/) {
  const Open& open = open_[--depth_];
  if (!open.chosen.timed) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - open.began;
  kernels_.observe(open.chosen, took.count(), work_of(KernelKey(call).call()) / work_of(call));
}

}  // namespace dflop
