// This file reads the modes of --tp, for commands that measure parts of a model.
#pragma once

#include <vector>

#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "experiments/cli/command.hpp"

namespace dflop {

inline constexpr int kMaxTp = 64;

/// Reads --tp and --no-sequence-parallel. Returns the modes, ascending and without duplicates. @throws Error
/// (usage)
std::vector<TpMode> read_tp_modes(const Values& values);

/// Checks that a model can run live in these modes.
/// @throws Error (usage) for a tp that cannot split the model's parts, else as require_live()
void require_tp_modes(const ModelSpec& model, const std::vector<TpMode>& modes);

}  // namespace dflop
