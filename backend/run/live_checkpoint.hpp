// The functions of this header write and read checkpoints of live runs. Each rank writes its own parameters
// and optimizer states to its own file. It reads its parts from the files of any ranks. Values are written
// and read a million at a time, in the precision of sums.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/run/live_rank.hpp"
#include "core/support/bytes.hpp"
#include "traces/checkpoints/pieces.hpp"

namespace dflop {

/// Returns the parts that a rank holds: for each parameter of its stages, the weights and, unless
/// `weights_alone` is true, both moments.
std::vector<HeldPart> held_parts(std::span<const LiveRank::HeldStage> stages, int rank, bool weights_alone);

/// Returns a checkpoint index's value for the dtype that ranks compute in.
Dtype dtype_of_index(DType dtype);

/// add_held_parts() appends parts to a writer's bytes; get_held_parts() reads all parts up to the end of the
/// bytes.
void add_held_parts(ByteWriter& writer, std::span<const HeldPart> parts);
std::vector<HeldPart> get_held_parts(ByteReader& reader);

/// Writes the pieces that the rank holds to file number `file` of `index`, in the folder `part`. @throws
/// Error (output)
CheckpointFile write_pieces(const RankContext& rank, std::span<const LiveRank::HeldStage> stages,
                            const std::string& part, const CheckpointIndex& index, std::size_t file);

/// Sets the weights and moments of a rank's stages from a checkpoint.
/// @throws Error (input) that names a tensor that is missing or has a different shape; what
/// CheckpointReader::read() throws
void read_pieces(const RankContext& rank, std::span<const LiveRank::HeldStage> stages,
                 const CheckpointReader& reader);

}  // namespace dflop
