// StoredNames map this project's tensors to the tensors of a transformers folder, which have other names and
// are split differently.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/model.hpp"

namespace dflop {

/// A StoredPart is a tensor of a transformers folder that holds some rows of one of this project's tensors
/// ("here").
struct StoredPart {
  std::string name;
  std::int64_t rows = 0;                 ///< rows of the tensor here
  std::vector<std::int64_t> shape = {};  ///< stored shape
  bool absent = false;  ///< not stored, and zeros here: key biases of models without key biases
  /// For a convolution, this is the number of its taps. Stored columns are ordered by value and then tap;
  /// columns here are ordered by tap and then value.
  int taps = 1;
};

/// StoredNames hold the tensor names of one model in one folder. Prefixes differ between versions of
/// transformers. InternVL models published by OpenGVLab use the names of their own code
/// (modeling_internvl_chat.py, modeling_intern_vit.py). transformers' convert_internvl_weights_to_hf.py lists
/// both kinds of names.
class StoredNames {
 public:
  /// Finds the folder's prefixes. `has` says whether the folder has a tensor.
  /// @throws Error (input) that names the missing tensor if a module is not found
  StoredNames(const ModelSpec& model, const std::function<bool(const std::string&)>& has);
  /// Uses the names that transformers 4 and 5 write, or OpenGVLab's own.
  explicit StoredNames(const ModelSpec& model, bool of_opengvlab = false);

  /// Returns the stored parts, in order, of the `rows` x `columns` tensor that is called `tensor` here
  /// ("llm.layers.3.qkv").
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
  bool remote_ = false;    ///< names are OpenGVLab's, not transformers'
  std::string llm_;        ///< "model."
  std::string head_;       ///< "lm_head.weight"
  std::string encoder_;    ///< "vision_tower."
  std::string connector_;  ///< "multi_modal_projector."
  std::string newline_;    ///< "image_newline"
};

}  // namespace dflop
