#include "experiments/studies/setting.hpp"

#include <vector>

#include "experiments/cli/option_values.hpp"

namespace dflop {

std::span<const Setting> settings() {
  // torch's DistributedDataParallel has buckets of 25 MiB.
  static const Setting kSettings[] = {
      {"tuned", "as in current training stacks"},
      {"published",
       "as in the released code of the published system: full recomputation, no ZeRO, no sequence "
       "parallelism, "
       "bf16 optimizer states, buckets of 25 MiB, reshard hub, bin order solver",
       {.gradient_bucket = {25 << 20},
        .optimizer_states = OptimizerStates::bf16,
        .reshard = Reshard::hub,
        .zero1 = false,
        .sequence_parallel = false,
        .trained = {}},
       true,
       BinOrder::solver},
  };
  return kSettings;
}

const Setting& find_setting(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Setting& setting : settings()) {
    if (setting.name == name) return setting;
    names.push_back(setting.name);
  }
  refuse_name("setting", names, name);
}

SearchOptions open_choices(const Setting& setting) {
  SearchOptions open;
  if (!setting.is_fixed) return open;
  open.orders = {setting.options.order};
  open.recomputations = {setting.options.recomputation};
  open.placements = {setting.options.placement};
  open.gradient_buckets = {setting.options.gradient_bucket};
  return open;
}

}  // namespace dflop
