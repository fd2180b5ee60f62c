// take_or_remedy() allocates memory. If the allocation fails, it tries remedies that free memory, in a fixed
// order. This header does not need CUDA.
#pragma once

namespace dflop {

/// Returns the result of take(). If that is null, calls the remedies one by one, and take() again after
/// each, until take() succeeds. Returns null if no remedy helps.
template <typename Take, typename... Remedies>
void* take_or_remedy(const Take& take, const Remedies&... remedies) {
  void* data = take();
  const auto retry = [&](const auto& remedy) {
    if (data != nullptr) return;
    remedy();
    data = take();
  };
  (retry(remedies), ...);
  return data;
}

}  // namespace dflop
