// A model is written as a folder of transformers.
#pragma once

#include <cstdint>
#include <string>

#include "core/model.hpp"
#include "traces/checkpoints/pieces.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {

/// Writes the weights of a checkpoint, a million values at a time, under the names and in the dtypes that a
/// folder has for them, to another that is there and empty. Where the first has no weights, names are those
/// of transformers 4 and 5, or OpenGVLab's own for its config, and the dtype is that of training. Beside them
/// stand copies of the first folder's files that are neither weights nor folders, as config.json and
/// tokenizer.json, so that transformers loads it. In each file wider dtypes come first, so that all numbers
/// are aligned.
/// @param most_file_bytes  of a file's data, but for one larger tensor
/// @throws Error (input) as StoredNames and CheckpointReader, and for tensors that do not fit the model;
///         Error (output)
void write_model_folder(const ModelSpec& model, const CheckpointReader& weights, const std::string& from,
                        const std::string& to, std::uint64_t most_file_bytes = kMostFileBytes);

}  // namespace dflop
