// A folder of transformers gives a model its weights.
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

/// FolderWeights reads the weights of a folder. Ranks read their own parts, a few MiB at once.
class FolderWeights final : public WeightSource {
 public:
  /// Opens the folder's files. @throws Error (input) as WeightsFolder and StoredNames
  FolderWeights(const ModelSpec& model, const std::string& folder);

  /// Returns the names of the folder's tensors of which the model has no part, as those of norms that nothing
  /// uses, or of biases where config.json says that there are none.
  std::vector<std::string> unused(const ModelSpec& model) const;

  /// @throws Error (input) for a tensor that is missing or has another shape than the model says
  void visit(const Parameter& tensor, Range rows, Range columns,
             const std::function<void(const StoredRun&)>& visit) const override;

 private:
  void visit_part(const StoredPart& part, const Parameter& tensor, Range rows, Range columns,
                  const std::function<void(const StoredRun&)>& visit) const;

  WeightsFolder folder_;
  StoredNames names_;
};

}  // namespace dflop
