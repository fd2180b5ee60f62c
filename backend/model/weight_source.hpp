// Weights may come from elsewhere than a seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/model/parameter_list.hpp"

namespace dflop {

/// A WeightSource gives values of whole tensors, block by block, so that a rank reads its own part alone. All
/// calls may come from several threads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Writes a block of rows and columns of a tensor of rows x columns to `out`, row by row.
  /// @throws Error (input) where the source has no such tensor
  virtual void read(const Parameter& tensor, Range rows, Range columns, std::span<double> out) const = 0;
};

}  // namespace dflop
