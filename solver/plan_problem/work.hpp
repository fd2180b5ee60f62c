// This header extracts the part of a Work that a stage does.
#pragma once

#include "core/program.hpp"
#include "core/work_counts.hpp"
#include "costmodel/sample_costs.hpp"

namespace dflop {

/// Returns the part of `work` that a stage does: the work of the modules whose layers the stage has.
inline Work work_of_stage(const Stage& stage, const Work& work) {
  return {stage.encoder_layers > 0 ? work.encoder : Workload{}, stage.llm_layers > 0 ? work.llm : Workload{}};
}

}  // namespace dflop
