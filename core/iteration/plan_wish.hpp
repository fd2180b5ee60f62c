// A PlanWish has the parts of a plan's parallelism that the user fixes; a planner chooses the rest.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/plan.hpp"

namespace dflop {

/// A ModuleWish has the tp, pp and dp that the user fixes for one module.
struct ModuleWish {
  std::optional<int> tp = {};
  std::optional<int> pp = {};
  std::optional<int> dp = {};

  bool is_empty() const { return !tp && !pp && !dp; }
  bool grants(const ModulePlan& module) const {
    return tp.value_or(module.tp) == module.tp && pp.value_or(module.pp) == module.pp &&
           dp.value_or(module.dp) == module.dp;
  }
};

struct PlanWish {
  ModuleWish llm = {};      ///< also the encoder's in a uniform plan
  ModuleWish encoder = {};  ///< of an encoder with a parallelism of its own
  std::optional<int> microbatches = {};

  bool is_empty() const { return llm.is_empty() && encoder.is_empty() && !microbatches; }
  bool grants(const Plan& plan) const {
    const bool has_own = plan.layout != Layout::uniform;
    return llm.grants(plan.llm) && (has_own ? encoder.grants(plan.encoder) : encoder.is_empty()) &&
           microbatches.value_or(plan.microbatches) == plan.microbatches;
  }
};

/// Returns the numbers of a wish, each with the name of its option.
inline std::array<std::pair<std::string_view, std::optional<int>*>, 7> parts_of(PlanWish& wish) {
  return {{{"tp", &wish.llm.tp},
           {"pp", &wish.llm.pp},
           {"dp", &wish.llm.dp},
           {"encoder-tp", &wish.encoder.tp},
           {"encoder-pp", &wish.encoder.pp},
           {"encoder-dp", &wish.encoder.dp},
           {"microbatches", &wish.microbatches}}};
}

}  // namespace dflop
