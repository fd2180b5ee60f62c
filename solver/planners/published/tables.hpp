// PublishedTables are the measurements of the published Profiling Engine, as its released code
// (github.com/BDAI-Research/DFLOP, 60e86d8, prof_engine.py) writes them to files.
#pragma once

#include <cstdint>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

inline constexpr double kGib = 0x1p30;  ///< bytes

/// A TimeRow is the time of forward and backward of a module with this many layers. Units are tiles for the
/// encoder, and tokens of one sequence for the LLM.
struct TimeRow {
  int tp = 1;
  int layers = 0;
  std::int64_t units = 0;
  double milliseconds = 0;
};

/// A MemoryRow has the memory of one rank in a training step of a module with this many layers, in GiB.
struct MemoryRow {
  int tp = 1;
  int layers = 0;
  std::int64_t units = 0;
  double forward_peak = 0;  ///< most memory during forward and loss, minus the memory before the forward
  double state_peak = 0;    ///< model state, with gradients
  double state_after = 0;   ///< model state after the step, when gradients are freed
};

struct PublishedTables {
  std::vector<TimeRow> encoder_times;
  std::vector<TimeRow> llm_times;
  std::vector<TimeRow> llm_times_without_attention;
  std::vector<MemoryRow> encoder_memory;
  std::vector<MemoryRow> llm_memory;
  std::int64_t tile_tokens = 0;  ///< encoder tokens of a tile: the mean length of the data's sequences
  std::vector<double> tiles;     ///< of each profiled sample
  std::vector<double> tokens;    ///< LLM tokens of each profiled sample
};

/// Predicts the tables with the request's cost model, recomputation and sequence parallelism, for the shapes
/// that the released engine measures. tp is 1, 2, 4 and 8 if it divides the module's heads and the GPUs of a
/// node.
///   times         encoder: 1 to 64 tiles, 16 layers; LLM: 1,024 to 8,192 tokens, 4 layers
///   model state   10 bytes per parameter: bf16 parameter, gradient, DDP's bucket and two moments
///   forward peak  what the microbatch keeps, plus the most that a layer needs only while it runs. The
///                 released loss keeps 4 bytes for each token and vocabulary entry, whole on each tp rank
/// The released engine does not recompute at tp 1, by mistake. These tables do.
/// @pre the request has a profiled sample with work for each module
PublishedTables published_tables(const PlanRequest& request);

}  // namespace dflop
