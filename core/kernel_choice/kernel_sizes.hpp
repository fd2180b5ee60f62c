// KernelKeys hold sizes up to a bound, which models are checked for where their calls are made.
#pragma once

#include <string>

#include "core/model.hpp"

namespace dflop {

/// Checks that the calls of a model's ranks at a tp have KernelKeys: sizes below 2^21, fewer than 4,096 query
/// heads and fewer than 512 key heads. `where` is the model's place for errors.
/// @throws Error (input) naming the size, for a model that is larger
void require_kernel_sizes(const ModelSpec& model, int tp, const std::string& where);

}  // namespace dflop
