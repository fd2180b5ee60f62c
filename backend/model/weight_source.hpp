// Weights may come from elsewhere than a seed.
#pragma once

#include <functional>
#include <string_view>

#include "backend/model/parameter_list.hpp"
#include "kernels/stored_numbers.hpp"

namespace dflop {

/// A StoredRun is some numbers of a tensor as its source stores them.
struct StoredRun {
  StoredNumbers numbers;
  std::string_view tensor;  ///< as the source names it; for messages, as the next
  std::string_view file;
};

/// A WeightSource gives values of whole tensors, block by block, so that a rank reads its own part alone. All
/// calls may come from several threads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Calls visit(run) for the numbers of a block of rows and columns of a tensor, row by row, in runs of any
  /// length. What a run refers to is there until the call returns.
  /// @throws Error (input) where the source has no such tensor
  virtual void visit(const Parameter& tensor, Range rows, Range columns,
                     const std::function<void(const StoredRun&)>& visit) const = 0;
};

}  // namespace dflop
