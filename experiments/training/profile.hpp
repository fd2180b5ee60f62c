// Live runs are predicted with this profile.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/world.hpp"
#include "core/model.hpp"
#include "core/program.hpp"
#include "costmodel/profiled/profiled.hpp"

namespace dflop {

/// Checks that a profile is of the device and model. `path` is the profile's place for errors. `elsewhere`:
/// it may have been measured on another machine.
/// @throws Error (input) for a profile of another device, processor, driver, precision or model.
void require_measured(const ProfileTables& profile, const std::string& path, const ModelSpec& model,
                      const World& world, DType dtype, bool elsewhere);

/// The same is checked for live runs of a plan.
/// @throws Error (input) as require_measured(), and for one without what the plan needs.
void require_profile(const ProfileTables& profile, const std::string& path, const ModelSpec& model,
                     const Plan& plan, const World& world, DType dtype, bool elsewhere);

/// Reads a profile; nothing without a path. @throws Error (input) as require_profile()
std::shared_ptr<const ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                               const ModelSpec& model, const Plan& plan,
                                                               const World& world, DType dtype,
                                                               bool elsewhere);

/// Returns the part of the program's compute instructions that are larger than what was measured.
double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program);

}  // namespace dflop
