// This file writes a trained model as a Hugging Face folder.
#pragma once

#include <string>

#include "backend/run/live_executor.hpp"
#include "core/model.hpp"

namespace dflop {

/// Writes the trained weights of a model from a Hugging Face folder to a new Hugging Face folder `to`. After
/// an error, `to` does not exist. All processes of the world call it, and all must see the folder. The
/// weights come from `checkpoint`, which must hold exactly these weights. If `checkpoint` is empty, each rank
/// first writes its weights to temporary files.
/// @throws what StagedFolder and write_model_folder() throw
void export_weights(const std::string& to, const ModelSpec& model, const std::string& checkpoint,
                    World& world, LiveExecutor& executor);

}  // namespace dflop
