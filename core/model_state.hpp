// ModelState: the memory that training holds all the time.
#pragma once

#include "core/units.hpp"

namespace dflop {

/// Bytes on one rank.
struct ModelState {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;

  Bytes total() const { return parameters + gradients + optimizer; }
  ModelState& operator+=(const ModelState& other) {
    parameters += other.parameters;
    gradients += other.gradients;
    optimizer += other.optimizer;
    return *this;
  }
  bool operator==(const ModelState&) const = default;
};

}  // namespace dflop
