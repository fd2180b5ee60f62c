// StoredNames map this project's tensors to the tensors of a transformers folder, which have other names and
// are split differently.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model.hpp"

namespace dflop {

/// A StoredPart is a tensor of a transformers folder that holds some rows of a tensor of this project.
struct StoredPart {
  std::string name;
  std::int64_t rows = 0;                 ///< number of rows of this project's tensor that it holds
  std::vector<std::int64_t> shape = {};  ///< shape in the folder
  /// Not in the folder; the rows have their initial values: zeros for key biases of models without key
  /// biases, sinusoids for a computed position table.
  bool absent = false;
  /// Number of taps of a convolution. Stored columns are ordered by value and then tap, this project's
  /// columns by tap and then value.
  int taps = 1;
};

/// StoredNames hold the tensor names of one model in one folder. Prefixes differ between versions of
/// transformers. InternVL models published by OpenGVLab use the names of OpenGVLab's code
/// (modeling_internvl_chat.py, modeling_intern_vit.py). transformers' convert_internvl_weights_to_hf.py
/// lists both kinds of names.
class StoredNames {
 public:
  /// Finds the folder's prefixes. has(name) must return whether the folder has the named tensor.
  /// @throws Error (input) that names the missing tensor if a module is not found, or the names of a tensor
  /// that the folder has twice, with two prefixes
  StoredNames(const ModelSpec& model, const std::function<bool(const std::string&)>& has);
  /// Uses the names that transformers 4 and 5 write or, if `of_opengvlab`, those of OpenGVLab.
  explicit StoredNames(const ModelSpec& model, bool of_opengvlab = false);

  /// Returns the stored parts, in order of rows, of this project's tensor with the name `tensor`
  /// ("llm.layers.3.qkv") and the shape [rows, columns].
  std::vector<StoredPart> parts(const std::string& tensor, std::int64_t rows, std::int64_t columns) const;

 private:
  /// Finds the prefixes with `has`, or uses the first ones if it is empty.
  StoredNames(const ModelSpec& model, const std::function<bool(const std::string&)>& has, bool remote);

  std::vector<StoredPart> llm(const std::string& rest, std::int64_t rows, std::int64_t columns) const;
  std::vector<StoredPart> encoder(const std::string& rest, std::int64_t rows, std::int64_t columns) const;
  std::vector<StoredPart> encoder_layer(const std::string& layer, const std::string& rest, std::int64_t rows,
                                        std::int64_t columns) const;
  std::vector<StoredPart> connector(const std::string& rest, std::int64_t rows, std::int64_t columns) const;
  std::vector<StoredPart> qkv(const TransformerSpec& spec, const std::string& base,
                              const std::vector<std::string>& names, const std::string& kind,
                              std::int64_t columns) const;

  /// EncoderPrefix is the prefix of an encoder's names, "thinker.audio_tower.".
  struct EncoderPrefix {
    std::string text;
  };
  /// Holds only the names of an encoder.
  StoredNames(ModelSpec model, EncoderPrefix prefix)
      : model_(std::move(model)), encoder_(std::move(prefix.text)) {}

  std::vector<StoredPart> second(const std::string& rest, std::int64_t rows, std::int64_t columns) const;

  const ModelSpec model_;
  bool remote_ = false;                        ///< names are OpenGVLab's, not transformers'
  std::string llm_;                            ///< "model."
  std::string head_;                           ///< "lm_head.weight"
  std::string encoder_;                        ///< "vision_tower."
  std::string connector_;                      ///< "multi_modal_projector."
  std::string newline_;                        ///< "image_newline"
  std::shared_ptr<const StoredNames> second_;  ///< of the second encoder, if there is one
};

}  // namespace dflop
