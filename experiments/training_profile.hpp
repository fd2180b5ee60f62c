// The profile that live runs are predicted with.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/world.hpp"
#include "core/model.hpp"
#include "core/program.hpp"
#include "costmodel/profiled.hpp"

namespace dflop {

/// `layout` has the plan's stages; live runs are in `dtype`. `path` is the profile's place for errors.
/// @throws Error (input) for a profile of another device, processor, precision or model, or one without what
/// the plan needs.
void require_profile(const ProfileTables& profile, const std::string& path, const ModelSpec& model,
                     const Program& layout, const World& world, DType dtype);

/// Nothing without a path. @throws Error (input) as require_profile()
std::shared_ptr<const ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                               const ModelSpec& model, const Program& layout,
                                                               const World& world, DType dtype);

/// The part of the program's compute instructions that are larger than what was measured.
double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program);

}  // namespace dflop
