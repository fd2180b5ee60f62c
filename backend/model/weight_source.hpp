// A WeightSource provides the initial weights of a model, for example from a folder of pretrained weights,
// instead of a random seed.
#pragma once

#include <functional>
#include <string_view>

#include "backend/model/parameter_list.hpp"
#include "kernels/stored_numbers.hpp"

namespace dflop {

/// A StoredRun holds consecutive numbers of a tensor, in the type in which the source stores them.
struct StoredRun {
  StoredNumbers numbers;
  std::string_view tensor;  ///< the source's name of the tensor; used in messages, like `file`
  std::string_view file;
};

/// A WeightSource gives the values of whole tensors block by block, so that a rank reads only its own part.
/// It is thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Calls visit(run) for the numbers of a tensor's block, which is the range of `rows` and `columns`: row
  /// by row, in runs of any length. A run's memory is valid only during the call.
  /// @throws Error (input) if the source does not have the tensor
  virtual void visit(const Parameter& tensor, Range rows, Range columns,
                     const std::function<void(const StoredRun&)>& visit) const = 0;
};

}  // namespace dflop
