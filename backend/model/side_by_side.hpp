// Tensors of one shape can be stored side by side: each row of the whole then has a row of each part.
#pragma once

#include <vector>

#include "backend/model/tensor.hpp"

namespace dflop {

/// Returns the parts, at least one and all of one shape, side by side.
Tensor side_by_side(const RankContext& rank, const std::vector<Tensor>& parts);
/// Returns the parts of a tensor that side_by_side() made of this many.
std::vector<Tensor> taken_apart(const RankContext& rank, const Tensor& all, int parts);
/// Returns a copy.
Tensor copy_of(const RankContext& rank, const Tensor& tensor);

}  // namespace dflop
