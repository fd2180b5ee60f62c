// The profile that a training run is predicted with.
#pragma once

#include <optional>
#include <string>

#include "backend/world.hpp"
#include "core/model.hpp"
#include "core/program.hpp"
#include "costmodel/profiled.hpp"

namespace dflop {

/// Nothing without a path. `layout` has the plan's stages; training is in f32.
/// @throws Error (input) for a profile of another device, processor, precision or model, or one without what
/// the plan needs.
std::optional<ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                       const ModelSpec& model, const Program& layout,
                                                       const World& world);

}  // namespace dflop
