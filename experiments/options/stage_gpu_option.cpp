#include "experiments/options/stage_gpu_option.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "experiments/cli/value_text.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/named_profile.hpp"

namespace dflop {

void add_stage_gpu_option(Options& options) {
  options.add(OptionGroup::what_if,
              {
                  {"stage-gpu", repeatable_text("S=CLUSTER"),
                   "run stage S on the GPU type of this cluster, with the links of the plan's cluster"},
              });
}

std::map<int, ClusterSpec> read_stage_gpus(const Values& values, const ClusterSpec& cluster,
                                           std::size_t stages) {
  std::map<int, ClusterSpec> gpus;
  for (const std::string& text : read_texts(values, "stage-gpu")) {
    if (cluster.is_mixed()) refuse_value("stage-gpu", "a plan on GPUs of one type", text);
    ValueText reader("stage-gpu", "S=CLUSTER", text);
    const int stage = reader.number(INT32_MIN, INT32_MAX);
    reader.expect("=");
    if (stage < 0 || static_cast<std::size_t>(stage) >= stages) {
      refuse_value("stage-gpu", fmt::format("a stage from 0 to {}", stages - 1), text);
    }
    ClusterSpec other = find_uniform_cluster(std::string(reader.rest()));
    require_speeds(other, "a cluster file of its own");
    const bool is_new = gpus.try_emplace(stage, std::move(other)).second;
    if (!is_new) refuse_value("stage-gpu", fmt::format("stage {} once", stage), text);
  }
  return gpus;
}

}  // namespace dflop
