// ModuleChoices are what a planner can choose for one module of a disaggregated plan.
#pragma once

#include <cstdint>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

enum class Module : std::uint8_t { encoder, llm };

/// A ModulePipeline has the tp and pp of one module.
struct ModulePipeline {
  int tp = 1;
  int pp = 1;
  int kind = 0;  ///< what its durations depend on: pipelines of one kind have the same slowest stage
};

/// A ModuleChoice is a pipeline with its dp.
struct ModuleChoice {
  int pipeline = 0;
  int dp = 1;
  int ranks = 1;
  Bytes model_state;  ///< the most of any stage
};

struct ModuleChoices {
  /// These are, for each kind of pipeline, the stages that can be the slowest: a stage that holds no more
  /// than another is left out.
  std::vector<std::vector<Stage>> kinds;
  std::vector<ModulePipeline> pipelines;
  std::vector<ModuleChoice> choices;
};

/// Returns the plan of one module with its layers split as evenly as they can be.
ModulePlan even_module(int layers, int tp, int pp, int dp);

/// Returns every tp that divides the GPUs of a node, pp with a layer for each stage, and dp that leave at
/// least one GPU to the other module, in this order. The LLM's dp is at most the global batch.
ModuleChoices module_choices(const PlanRequest& request, Module module);

}  // namespace dflop
