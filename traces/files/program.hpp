// This file exports programs, so that another executor, such as the PyTorch one, runs the same program as the
// simulator.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/iteration/iteration.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// Returns an iteration's program, complete for an executor that knows neither plan nor model:
///
///   "layout"       the plan's layout; if disaggregated, the encoder has its own dp ranks
///   "stages"       {encoder_layers, llm_layers, connector, embedding, head} of each stage
///   "groups"       {rank, ranks, stage, dp_rank, instructions: [[op, stage, microbatch, index], ...]}; the
///                  index points into messages or collectives; -1: none
///   "messages"     [source group, destination group, microbatch, 1 for activations or 0 for gradients,
///                  source row, destination row, rows, rows of the receiver's matrix]
///                  (core/program/message_rows.hpp)
///   "collectives"  {groups, bytes, sum}; sum is "gradients" of the instruction's stage, "joined_ends" of an
///                  embedding and a head that are one matrix, or "norm" of all gradients
///   "bins"         [bin of sample 0, bin of sample 1, ...]; bin = microbatch * llm_dp + dp rank
///   "pieces"       [microbatch, encoder dp rank, LLM dp rank, sample, first sequence, sequences,
///                  first output row of the sample, rows]: runs of a sample's encoder sequences that one rank
///                  encodes, in the order of the rank's microbatch
///
/// @throws what message_rows() throws
nlohmann::ordered_json program_json(const Iteration& iteration, const ModelSpec& model);

/// Returns a file of schema "dflop.program", version 1, with the programs of iterations.
std::string program_file(const std::vector<nlohmann::ordered_json>& iterations, const Provenance& made_by);

}  // namespace dflop
