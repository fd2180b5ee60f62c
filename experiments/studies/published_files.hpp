// write_published_tables() writes the tables of the published planners for the released optimizer.
#pragma once

#include <string>

#include "experiments/studies/planning.hpp"

namespace dflop {

/// Writes the published_tables() of a planning into an existing folder, in the files that the released
/// optimizer (github.com/BDAI-Research/DFLOP, 60e86d8, data_aware_optimizer.py) reads:
///   mem_*.csv, thr_*.csv  memory and times of encoder and LLM, and times of the LLM without attention
///   *.pkl                 tiles and LLM tokens of each sample
///   dflop_config.yaml     names of the models, number and memory of GPUs, global batch size
/// So `DFLOP_CONFIG=FOLDER/dflop_config.yaml python data_aware_optimizer.py` plans the same problem as
/// planner dflop. Returns a note if the optimizer knows the encoder with another number of layers, or an
/// empty string.
/// @throws Error (input) for a model that the released code does not have, or whose encoder is not profiled
/// at tp 1, 2, 4 and 8; Error (output)
void write_published_tables(const std::string& folder, const PlanningInput& input);

}  // namespace dflop
