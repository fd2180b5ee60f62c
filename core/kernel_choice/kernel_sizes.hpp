// KernelKeys have bounded sizes. Code that makes calls for a model checks the model against these bounds
// first.
#pragma once

#include <string>

#include "core/model.hpp"

namespace dflop {

/// Checks that the calls of a model's ranks at this tp fit into KernelKeys: sizes below 2^21, fewer than
/// 4,096 query heads and fewer than 512 key heads. `where` names the model in errors.
/// @throws Error (input) naming the size, for a model that is larger
void require_kernel_sizes(const ModelSpec& model, int tp, const std::string& where);

}  // namespace dflop
