// Weights of transformers have other names than those here, and are cut otherwise: this says which is which.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/model.hpp"

namespace dflop {

/// A StoredPart is some rows of a tensor as a folder of transformers has them: a tensor of its own.
struct StoredPart {
  std::string name;
  std::int64_t rows = 0;                 ///< of the tensor here
  std::vector<std::int64_t> shape = {};  ///< as it is stored
  bool absent = false;  ///< it is not stored, and zeros here: keys' biases of models that have none
  /// Columns are stored value by value, with the taps of a convolution inside, and here tap by tap.
  int taps = 1;
};

/// StoredNames are those of one model in one folder: versions of transformers put different prefixes before
/// them, which a folder keeps. InternVL as OpenGVLab publishes it has the names of the code beside it
/// (modeling_internvl_chat.py, modeling_intern_vit.py; transformers' convert_internvl_weights_to_hf.py has
/// both).
class StoredNames {
 public:
  /// Finds the prefixes; `has` says whether a folder has a tensor.
  /// @throws Error (input) naming what was looked for where a module is not found
  StoredNames(const ModelSpec& model, const std::function<bool(const std::string&)>& has);
  /// Takes those that transformers 4 and 5 write, or OpenGVLab's own.
  explicit StoredNames(const ModelSpec& model, bool of_opengvlab = false);

  /// Returns the parts of a tensor of `rows` x `columns`, by its name here ("llm.layers.3.qkv"), one after
  /// the other.
  std::vector<StoredPart> parts(const std::string& tensor, std::int64_t rows, std::int64_t columns) const;

 private:
  std::vector<StoredPart> llm(const std::string& rest, std::int64_t rows, std::int64_t columns) const;
  std::vector<StoredPart> encoder(const std::string& rest, std::int64_t rows, std::int64_t columns) const;
  std::vector<StoredPart> encoder_layer(const std::string& layer, const std::string& rest, std::int64_t rows,
                                        std::int64_t columns) const;
  std::vector<StoredPart> connector(const std::string& rest, std::int64_t rows, std::int64_t columns) const;
  std::vector<StoredPart> qkv(const TransformerSpec& spec, const std::string& base,
                              const std::vector<std::string>& names, const std::string& kind,
                              std::int64_t columns) const;

  const ModelSpec model_;
  bool remote_ = false;    ///< names are those of the code beside OpenGVLab's models, not of transformers
  std::string llm_;        ///< "model."
  std::string head_;       ///< "lm_head.weight"
  std::string encoder_;    ///< "vision_tower."
  std::string connector_;  ///< "multi_modal_projector."
  std::string newline_;    ///< "image_newline"
};

}  // namespace dflop
