// The ranks of a ProcessWorld are processes, one each, which learn from what their launcher has put into the
// environment which ranks they are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/process/rendezvous.hpp"
#include "backend/world.hpp"

namespace dflop {

/// A LaunchEnvironment is a process's place in a run of many.
struct LaunchEnvironment {
  std::string launcher;  ///< "torchrun", "mpirun" or "srun", by the names of the variables
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;      ///< among the ranks of this machine: the index of its GPU
  std::string host;        ///< of rank 0, where all ranks meet
  int port = 0;            ///< there
  std::string token = {};  ///< of the run, by which its ranks know each other; empty: nothing gives one
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
///
/// The run's token is DFLOP_TOKEN, or else what the launcher calls the run:
///
///     torchrun   TORCHELASTIC_RUN_ID, but "none", which is that of all that were given no --rdzv-id
///     mpirun     PMIX_NAMESPACE, OMPI_MCA_ess_base_jobid
///     srun       SLURM_JOB_ID, SLURM_STEP_ID
///
/// @throws Error (usage) naming a variable that is missing, is not a whole number or is out of range.
LaunchEnvironment read_launch_environment(const Environment& environment);

/// Returns what to say of a run whose ranks have no token; empty where they have one.
std::string token_note(const LaunchEnvironment& launch);

/// A ProcessWorld has one rank. What processes tell each other goes through their rendezvous; devices and
/// communicators are of those who derive from it.
class ProcessWorld : public World {
 public:
  /// Meets the other processes. @throws as Rendezvous.
  explicit ProcessWorld(const RendezvousOptions& options) : rendezvous_(options) {}
  /// Leaves in order; whoever has failed calls abort() before.
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

/// Compares, by name, what must be the same in all processes.
/// @throws Error (input) in all of them, naming the first that differs and whose it is.
void require_agreement(World& world, const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace dflop
