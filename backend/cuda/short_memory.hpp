// What is done where memory is short has an order, whatever gives the memory. The header needs no CUDA.
#pragma once

namespace dflop {

/// Returns what `take` gives, and where that is null, what it gives after the first remedy that helps; null
/// where none does. Remedies are called in their order, each only where those before have not helped.
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
