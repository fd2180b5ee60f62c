// Ranks write what they hold of parameters and optimizer states to files of a checkpoint and read what they
// need from those of any ranks, each by itself: a million values at a time, in the precision of sums.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/run/live_rank.hpp"
#include "core/support/bytes.hpp"
#include "traces/checkpoints/pieces.hpp"

namespace dflop {

/// Returns what a rank holds: of each parameter of its stages the weights and, unless they alone are asked
/// for, both moments.
std::vector<HeldPart> held_parts(std::span<const LiveRank::HeldStage> stages, int rank, int tp_rank,
                                 bool weights_alone);

/// Returns how an index names the dtype that ranks compute in.
Dtype dtype_of_index(DType dtype);

/// Appends parts, and takes all that are appended off again.
void add_held_parts(ByteWriter& writer, std::span<const HeldPart> parts);
std::vector<HeldPart> get_held_parts(ByteReader& reader);

/// Writes a file of a checkpoint into the folder `part`: pieces of what the rank holds.
/// @throws Error (output)
CheckpointFile write_pieces(const RankContext& rank, std::span<const LiveRank::HeldStage> stages,
                            const std::string& part, const CheckpointIndex& index, std::size_t file);

/// Sets the weights and moments of a rank's stages.
/// @throws Error (input) naming a tensor that is missing or has another shape; as CheckpointReader::read()
void read_pieces(const RankContext& rank, std::span<const LiveRank::HeldStage> stages,
                 const CheckpointReader& reader);

}  // namespace dflop
