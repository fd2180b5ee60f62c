// A Target is a model on a cluster, with its cost model and executor: what plans are made for and run on.
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

/// A Use is the purpose of a Target. If its costs are not used, because other costs replace them or only its
/// shape matters, the cluster's speeds may be placeholders.
enum class Use : std::uint8_t { costs, shape };

/// A Target is a model on a cluster, with its cost model and executor.
struct Target {
  /// Finds model and cluster. `plan_file` is the file that names them, for errors; empty if the command line
  /// names them. `change` is applied to the cluster first. Costs come from `profile` if there is one, else
  /// they are analytic.
  /// @throws Error (input) as find_model() and find_cluster(), for a profile of another model, and without a
  /// profile, if costs are used, as require_speeds().
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

/// Notes for which GPU types of a mixed cluster plans are made; prints nothing for other clusters.
void note_gpu_types(const ClusterSpec& cluster);

/// Prints a note about which parts are trained, unless all are. @throws Error as validate()
void note_trained(const TrainedParts& trained, const ModelSpec& model);

}  // namespace dflop
