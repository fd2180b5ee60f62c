// A Target is a model on a cluster, with its cost model and executor. Plans are made for a Target and run on
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/iteration/iteration.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "experiments/studies/named_profile.hpp"
#include "sim/engine.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A Use says whether a Target's costs are used. With Use::shape, only its shape matters or other costs
/// replace its costs, so the cluster's speeds may be placeholders.
enum class Use : std::uint8_t { costs, shape };

/// A Target is a model on a cluster, with its cost model and executor.
struct Target {
  /// Finds model and cluster. `plan_file` is the file that has their names, for errors; empty if they come
  /// from the command line. Applies `change` to the cluster first. Costs come from `profile`, or are analytic
  /// if it is null.
  /// @throws Error (input) for a profile of another model; what find_model() and find_cluster() throw; for
  /// analytic costs that are used, what require_speeds() throws
  Target(const std::string& model_name, const std::string& cluster_name, const std::string& plan_file = "",
         const std::function<void(ClusterSpec&)>& change = {}, const NamedProfile* profile = nullptr,
         Use use = Use::costs);
  Target(const Target&) = delete;  // the members refer to each other

  ModelSpec model;
  ClusterSpec cluster;
  const std::unique_ptr<const SumCostModel> owned_cost;
  const SumCostModel& cost;
  std::optional<Origin> profile = {};  ///< the profile that the costs come from
  std::optional<Origin> kernels = {};  ///< the kernel file that the profile was adjusted to
  SimExecutor executor;                ///< without conditions

  Problem problem() const { return {model, cluster, cost}; }
};

/// For a mixed cluster, prints a note that says for which GPU types plans are made.
void note_gpu_types(const ClusterSpec& cluster);

/// Prints a note about which parts of the model are trained, unless all are. @throws what validate() throws
void note_trained(const TrainedParts& trained, const ModelSpec& model);

}  // namespace dflop
