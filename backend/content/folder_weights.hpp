// FolderWeights reads a model's pretrained weights from a Hugging Face transformers folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/content/stored_names.hpp"
#include "backend/model/parameter_store.hpp"
#include "backend/model/weight_source.hpp"
#include "core/model.hpp"
#include "traces/weights/folder.hpp"

namespace dflop {

/// FolderWeights is a WeightSource that reads from a Hugging Face transformers folder. Each rank reads only
/// its own parts, a few MiB at a time.
class FolderWeights final : public WeightSource {
 public:
  /// Opens the folder's files. @throws what the constructors of WeightsFolder and StoredNames throw
  FolderWeights(const ModelSpec& model, const std::string& folder);

  /// Returns the names of the folder's tensors that the model does not use, such as unused norms, or biases
  /// that the folder holds although config.json says that there are none.
  std::vector<std::string> unused(const ModelSpec& model) const;

  /// Returns the names of the tensors that the model needs and the folder lacks.
  std::vector<std::string> missing(const ModelSpec& model) const;

  /// @throws Error (input) for a tensor that is missing or whose shape differs from the model's
  void visit(const Parameter& tensor, Range rows, Range columns,
             const std::function<void(const StoredRun&)>& visit) const override;

 private:
  std::vector<StoredPart> parts_of(const ModelSpec& model) const;
  void visit_part(const StoredPart& part, const Parameter& tensor, Range rows, Range columns,
                  const std::function<void(const StoredRun&)>& visit) const;

  WeightsFolder folder_;
  StoredNames names_;
};

}  // namespace dflop
