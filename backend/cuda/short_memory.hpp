// take_or_remedy() allocates memory, and frees some in a fixed order of steps if the allocation fails. This
// header does not need CUDA.
#pragma once

namespace dflop {

/// Returns the result of take(). While the result is null, calls the next of `remedies` and tries take()
/// again. Returns null if no remedy helps.
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
