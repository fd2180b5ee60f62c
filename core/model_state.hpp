// A ModelState is the memory that training holds all the time.
#pragma once

#include "core/units.hpp"

namespace dflop {

/// A ModelState has the bytes that one rank holds all the time.
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
