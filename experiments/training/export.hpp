// A trained model becomes a folder of transformers.
#pragma once

#include <string>

#include "backend/run/live_executor.hpp"
#include "core/model.hpp"

namespace dflop {

/// Writes the weights of a model from a folder of transformers as another such folder, which is complete or
/// not there. All processes of the world, which see the folder, call it. The weights come from the checkpoint
/// of these very weights, or, where that is empty, from files that each rank writes for this.
/// @throws Error (output) as StagedFolder; as write_model_folder()
void export_weights(const std::string& to, const ModelSpec& model, const std::string& checkpoint,
                    World& world, LiveExecutor& executor);

}  // namespace dflop
