// A VariantOf lets one Kernels object compute with a variant of a different Kernels object: bf16 kernels use
// the variants of f32 kernels, and a team's kernels use the variants of single-threaded kernels.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/kernels.hpp"

namespace dflop::host {

/// A VariantOf is one variant of an operation that belongs to a different Kernels object.
template <typename... Args>
struct VariantOf {
  const Operation<void(Args...)>& operation;
  std::size_t variant;

  void operator()(Args... args) const { operation.run_variant(variant, args...); }
};

/// KeptStates owns the states of kernel functions.
class KeptStates {
 public:
  template <typename State>
  State& keep(State state) {
    const auto kept = std::make_shared<State>(std::move(state));
    states_.push_back(kept);
    return *kept;
  }

 private:
  std::vector<std::shared_ptr<void>> states_;
};

}  // namespace dflop::host
