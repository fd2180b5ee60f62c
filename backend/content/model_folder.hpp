// write_model_folder() exports a checkpoint's weights as a Hugging Face transformers model folder.
#pragma once

#include <cstdint>
#include <string>

#include "core/model.hpp"
#include "traces/checkpoints/pieces.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {

/// Writes the weights of a checkpoint to the existing empty folder `to`, so that transformers can load that
/// folder. Writes a million values at a time. Tensor names and dtypes are those of the folder `from`. If
/// `from` has no weights, the dtype is that of training; the names are those of transformers 4 and 5 or, for
/// a config of OpenGVLab, those of OpenGVLab. Also copies all other files of `from`, such as config.json and
/// tokenizer.json, but not its subfolders. Within each file, wider dtypes come first so that all numbers are
/// aligned.
/// @param most_file_bytes  the max size of a file's data, unless a single tensor is larger
/// @throws the errors (input) that StoredNames and CheckpointReader throw; Error (input) for tensors that do
///         not fit the model; Error (output)
void write_model_folder(const ModelSpec& model, const CheckpointReader& weights, const std::string& from,
                        const std::string& to, std::uint64_t most_file_bytes = kMaxFileBytes);

}  // namespace dflop
