#include "experiments/studies/target.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"

namespace dflop {
namespace {

/// Returns advice for a plan whose model or cluster is a path relative to another folder; "" if it is not.
std::string folder_hint(const std::string& name) {
  const std::size_t colon = name.rfind(':');  // before the number of nodes of a cluster
  const std::filesystem::path path =
      name.substr(0, name.find('/', colon) == std::string::npos ? colon : name.npos);
  std::error_code failed;
  const bool names_a_file = path.has_parent_path() || path.extension() == ".json";
  if (!names_a_file || path.is_absolute() || std::filesystem::exists(path, failed)) return "";
  return fmt::format(
      "; a plan stores paths as typed, relative to the working directory: run in the folder where the "
      "plan was made, or plan with absolute paths; the working directory is '{}'",
      std::filesystem::current_path(failed).string());
}

/// Calls find(name). Its errors also name the key of the plan that has this name.
template <typename Find>
auto named_by(const std::string& plan_file, const std::string& key, const std::string& name, Find find) {
  try {
    return find(name);
  } catch (const Error& error) {
    if (plan_file.empty()) throw;
    throw Error(error.kind(), error.what() + folder_hint(name), plan_file + ": key '" + key + "'");
  }
}

ClusterSpec changed(ClusterSpec cluster, const std::function<void(ClusterSpec&)>& change) {
  if (change) change(cluster);
  return cluster;
}

std::unique_ptr<const SumCostModel> cost_of(const ModelSpec& model, const ClusterSpec& cluster,
                                            const NamedProfile* profile, Use use) {
  if (profile == nullptr && use == Use::costs) require_speeds(cluster);
  if (profile == nullptr) return std::make_unique<AnalyticCostModel>(model, cluster);
  require_model(model, profile->tables, profile->path);
  if (cluster.is_mixed()) {
    refuse_input(profile->path,
                 "expected a cluster with one GPU type, because the profile is of '{}', found {} types",
                 profile->tables.device, cluster.node_groups.size());
  }
  return measured_cost(profile->tables);
}

}  // namespace

Target::Target(const std::string& model_name, const std::string& cluster_name, const std::string& plan_file,
               const std::function<void(ClusterSpec&)>& change, const NamedProfile* measured, Use use)
    : model(named_by(plan_file, "model", model_name, find_model)),
      cluster(changed(named_by(plan_file, "cluster", cluster_name, find_cluster), change)),
      owned_cost(cost_of(model, cluster, measured, use)),
      cost(*owned_cost) {
  if (measured == nullptr) return;
  profile = {measured->path, measured->hash};
  kernels = measured->kernels;
}

void note_gpu_types(const ClusterSpec& cluster) {
  if (!cluster.is_mixed()) return;
  std::string types;
  for (const NodeGroup& group : cluster.node_groups)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", group.nodes, group.gpu.name);
  say("dflop: note: nodes of {}: runs use each rank's own GPU, estimates use the slowest GPU, and bounds "
      "use the fastest; plans fit into {:.1f} GiB, the smallest usable memory\n",
      types, static_cast<double>(cluster.gpu.usable_memory().count) * 0x1p-30);
}

void note_trained(const TrainedParts& trained, const ModelSpec& model) {
  validate(trained, model);
  if (!trained.all())
    say("dflop: note: trained: {}; everything else is frozen. Such plans can be simulated, but neither "
        "train nor an Executor of dflop.torch can run them\n",
        describe(trained));
}

}  // namespace dflop
