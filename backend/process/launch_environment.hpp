// A process learns which rank of a run it is from what its launcher has put into the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dflop {

/// A LaunchEnvironment is a process's place in a run of many.
struct LaunchEnvironment {
  std::string launcher;  ///< "torchrun", "mpirun" or "srun", by the names of the variables
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  ///< among the ranks of this machine: the index of its GPU
  std::string host;    ///< of rank 0, where all ranks meet
  int port = 0;        ///< there
};

/// An Environment gives the value of a variable; none where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns the environment of this process.
Environment process_environment();

/// Reads a process's place in its run. The first of these whose rank is set gives rank, ranks and local rank:
///
///     torchrun   RANK, WORLD_SIZE, LOCAL_RANK
///     mpirun     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
///     srun       SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
///
/// All need MASTER_ADDR and MASTER_PORT. Where torchrun itself listens on MASTER_PORT, as it says by
/// TORCHELASTIC_USE_AGENT_STORE, ranks meet on the port after it. DFLOP_PORT is used as it is, before both.
/// @throws Error (usage) naming a variable that is missing, is not a whole number or is out of range.
LaunchEnvironment read_launch_environment(const Environment& environment);

}  // namespace dflop
