// The LiveExecutor is the Executor that runs the iterations of one plan on real devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/run/live_rank.hpp"
#include "backend/world.hpp"
#include "core/iteration/iteration.hpp"
#include "traces/checkpoints/index.hpp"

namespace dflop {

struct LiveOptions {
  DType dtype = DType::f32;
  std::uint64_t seed = 1;  ///< of the parameters' first values and, without contents, of what is in batches
  std::shared_ptr<const Contents> contents = nullptr;  ///< null: made up
  const WeightSource* weights =
      nullptr;  ///< of the parameters' first values, while ranks are made; null: the seed
};

/// StepInputs are what the ranks of a process read of one iteration, each its own.
using StepInputs = std::vector<RankInputs>;

/// A LiveResult is what a step of all ranks came to, in the process that leads the world; nothing in its
/// others.
struct LiveResult {
  Timeline timeline;
  double loss = 0;  ///< mean over the trained tokens of the batch
  /// This is the norm of all gradients before clipping, with a plan that clips. Where it or the loss is not
  /// finite, no rank of such a plan has changed its weights.
  std::optional<double> gradient_norm;
  std::vector<std::vector<KernelObservation>> kernels;  ///< by rank, of the step's choices
};

/// Checks that live ranks can run a plan as it says.
/// @throws Error (input) naming the key, for optimizer states in bf16 and for a hub.
void require_live(const Plan& plan);

/// A LiveExecutor runs every rank of this process in a thread of its own, and holds the ranks' parameters.
/// All processes of its world make the same calls in the same order.
class LiveExecutor final : public Executor {
 public:
  /// Makes the ranks of this process. Plan, model and world outlive the executor.
  /// @throws Error (input) where the plan's ranks are not those of the world, or are on other devices, or the
  /// model cannot be run as the plan says; OutOfMemory.
  LiveExecutor(const Plan& plan, const ModelSpec& model, World& world, const LiveOptions& options);
  ~LiveExecutor() override;

  /// Runs a step of learning rate zero, which takes all its time. It leaves the weights as they are, where
  /// gradients are finite, but moves the optimizer's moments.
  /// @throws as step()
  Timeline run(const Iteration& iteration, Detail detail) const override;

  /// Runs a training step, which changes the parameters that the ranks hold. It is const as run() is, for
  /// which only the executor's own members count. The timeline has its spans. With the forwards of a program
  /// alone (core/program/forwards.hpp) it is an evaluation: it gives the loss, keeps no activations, and
  /// leaves parameters, gradients and optimizer states as they are.
  /// `inputs` are those that make_inputs() made of the iteration; without any, ranks make them first.
  /// @throws Error (internal) for an iteration of another plan, else what the first rank that failed has
  /// thrown; the run cannot be gone on with then.
  LiveResult step(const Iteration& iteration, const StepOptions& options, StepInputs inputs = {}) const;

  /// Makes what the ranks of this process read of an iteration, from the executor's contents, in host memory.
  /// It may be called while another step runs. @throws as Contents
  StepInputs make_inputs(const Iteration& iteration) const;

  /// Returns whether ranks compute on the cores on which inputs are made, so that making them beside a step
  /// would only make it longer.
  bool is_synchronous() const;

  /// Returns the variants of operations of a rank of this process.
  VariantNames variant_names() const;

  /// Returns the device memory that a rank of this process holds now: between two runs, what it keeps from
  /// one to the next. @throws Error (internal) for another process's rank.
  Bytes in_use(int rank) const;

  /// Returns parameters, gradients or optimizer states of all ranks, put together from their parts, in the
  /// process that leads the world; none in its others. All processes call it, as write().
  WholeTensors read(ParameterStore::Kind which);
  /// Sets the parameters, gradients or optimizer states of all ranks, as the leading process gives them.
  /// @throws Error (input) naming a tensor that is missing or has another shape.
  void write(ParameterStore::Kind which, const WholeTensors& tensors);

  /// Writes parameters and optimizer states as the checkpoint of index.step in a run's folder, which all
  /// processes see: each rank writes a file of its own, in its thread, of what it alone holds or is the first
  /// to hold. All processes call it; of the index that of the leading one counts, but for its dtype, files
  /// and tensors.
  /// It returns when the checkpoint is complete and on the disk. One that cannot be written leaves nothing.
  /// @throws Error (output) in all processes where one of them cannot write
  void save(const std::string& folder, const CheckpointIndex& index);
  /// Writes parameters alone, as save() does, into a folder that is there and has nothing else: for those who
  /// read them with a CheckpointReader. All processes call it. @throws Error (output)
  void save_weights(const std::string& folder);
  /// Sets parameters and optimizer states from a checkpoint, of which each rank reads its part, in its
  /// thread. All processes call it with the same folder.
  /// @throws Error (input) as CheckpointReader, and naming a tensor that is missing or has another shape.
  void load(const std::string& checkpoint);

 private:
  struct Rank;

  CheckpointIndex divided(const CheckpointIndex& index, bool weights_alone);
  void write_files(const std::string& folder, CheckpointIndex& index);
  void require_own(const Iteration& iteration, const StepOptions& options) const;
  BatchContent content_of(const Iteration& iteration, const Contents& contents) const;
  /// Entries are the receives that ranks enter ahead of their instructions, where their communicators need
  /// that, and whether sums begin when their gradients are complete.
  struct Entries {
    ReceivePosts posts;
    bool starts_sums = true;
  };
  Entries entries_of(const Iteration& iteration) const;
  LiveResult joined(const Program& program, const std::vector<std::string>& processes) const;

  const Plan& plan_;
  const ModelSpec& model_;
  World& world_;
  std::uint64_t seed_;
  std::shared_ptr<const Contents> contents_;
  std::vector<Stage> stages_;              // of the plan
  std::vector<std::size_t> first_groups_;  // by stage
  std::vector<std::unique_ptr<Rank>> ranks_;
  mutable std::mutex turn_;  // of steps
};

}  // namespace dflop
