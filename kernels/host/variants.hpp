// Some kernels compute with the variants of other kernels: those of bf16 with f32's, those of a team with
// what one thread does.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/kernels.hpp"

namespace dflop::host {

/// A VariantOf is one variant of an operation of other kernels.
template <typename... Args>
struct VariantOf {
  const Operation<void(Args...)>& operation;
  std::size_t variant;

  void operator()(Args... args) const { operation.run_variant(variant, args...); }
};

/// KeptStates are what the functions of some kernels have as their states.
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
