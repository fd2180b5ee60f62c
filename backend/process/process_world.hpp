// A ProcessWorld runs one rank per process. A launcher such as torchrun, mpirun or srun starts the processes
// and sets the environment variables that give each process its rank.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/process/rendezvous.hpp"
#include "backend/world.hpp"

namespace dflop {

/// A LaunchEnvironment says which rank of a run this process has, and how it reaches the other processes.
struct LaunchEnvironment {
  std::string launcher;  ///< "torchrun", "mpirun" or "srun", found from the variables
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  ///< index among the ranks of this machine; also the index of its GPU
  std::string host;    ///< host of rank 0, to which all ranks connect
  int port = 0;
  std::string token = {};  ///< text by which the ranks of one run recognize each other; empty: not set
};

/// An Environment returns the value of a variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns the environment of this process.
Environment process_environment();

/// Reads a process's place in its run. The first launcher whose rank variable is set gives rank, ranks and
/// local rank:
///
///     torchrun   RANK, WORLD_SIZE, LOCAL_RANK
///     mpirun     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
///     srun       SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
///
/// All need MASTER_ADDR and MASTER_PORT. If TORCHELASTIC_USE_AGENT_STORE says that torchrun itself listens
/// on MASTER_PORT, the ranks meet on the next port. If DFLOP_PORT is set, the ranks meet on that port
/// instead.
///
/// The run's token is DFLOP_TOKEN or, if that is not set, the launcher's name for the run:
///
///     torchrun   TORCHELASTIC_RUN_ID, except "none", which every run without --rdzv-id has
///     mpirun     PMIX_NAMESPACE, OMPI_MCA_ess_base_jobid
///     srun       SLURM_JOB_ID, SLURM_STEP_ID
///
/// @throws Error (usage) that names a variable that is missing, not a whole number or out of range.
LaunchEnvironment read_launch_environment(const Environment& environment);

/// Returns a note that tells users that the run has no token; empty if it has one.
std::string token_note(const LaunchEnvironment& launch);

/// A ProcessWorld has one local rank. Processes exchange bytes through their rendezvous. Derived classes make
/// devices and communicators.
class ProcessWorld : public World {
 public:
  /// Connects to the other processes. @throws what Rendezvous's constructor throws
  explicit ProcessWorld(const RendezvousOptions& options) : rendezvous_(options) {}
  /// Leaves the run normally. After a failure, call abort() first.
  ~ProcessWorld() override { rendezvous_.leave(); }
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  int ranks() const override { return rendezvous_.ranks(); }
  std::vector<int> local_ranks() const override { return {rendezvous_.rank()}; }
  std::vector<std::string> gather(std::string bytes) override {
    return rendezvous_.gather(std::move(bytes), "what is gathered");
  }
  std::string broadcast(std::string bytes) override {
    return rendezvous_.broadcast(std::move(bytes), "the next word");
  }
  Nanoseconds clock_offset() override { return rendezvous_.clock_offset(); }
  void abort(const std::string& reason) override { rendezvous_.abort(reason); }

 protected:
  Rendezvous& rendezvous() { return rendezvous_; }

 private:
  Rendezvous rendezvous_;
};

/// Checks that named values are the same in all processes.
/// @throws Error (input) in all processes, naming the first value that differs and its process.
void require_agreement(World& world, const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace dflop
