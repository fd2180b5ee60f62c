// This file writes a trained model as a Hugging Face folder.
#pragma once

#include <string>

#include "backend/run/live_executor.hpp"
#include "core/model.hpp"

namespace dflop {

/// Writes the weights of a model that came from a Hugging Face folder as another such folder, which is either
/// complete or absent. All processes of the world call it, and all see the folder. The weights come from
/// `checkpoint`, which must hold exactly these weights, or, if it is empty, from files that each rank writes
/// for this purpose.
/// @throws Error (output) as StagedFolder; as write_model_folder()
void export_weights(const std::string& to, const ModelSpec& model, const std::string& checkpoint,
                    World& world, LiveExecutor& executor);

}  // namespace dflop
