// A LiveExecutor is the Executor that trains on real devices: it runs the iterations of one plan and holds
// the parameters.
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
  std::uint64_t seed = 1;  ///< for initial parameters and, if `contents` is null, synthetic batches
  std::shared_ptr<const Contents> contents = nullptr;  ///< null: synthetic contents
  const WeightSource* weights =
      nullptr;  ///< source of the initial parameters, used only by the constructor; null: drawn from the seed
};

/// StepInputs hold the inputs of one iteration for each rank of a process.
using StepInputs = std::vector<RankInputs>;

/// A LiveResult is the result of a step over all ranks. Only the leading process gets it; the other
/// processes get an empty result.
struct LiveResult {
  Timeline timeline;
  double loss = 0;  ///< mean over the batch's trained tokens
  /// If the plan clips gradients: the norm of all gradients before clipping. Under such a plan, ranks do not
  /// change their weights in a step whose norm or loss is not finite.
  std::optional<double> gradient_norm;
  std::vector<std::vector<KernelObservation>> kernels;  ///< measurements by rank, for the step's choices
};

/// Returns why live ranks cannot train only these parts, and what to do instead; nothing if they can.
std::string why_untrainable(const TrainedParts& trained);
/// Checks that live ranks can run a plan. @throws Error (input) that names the unsupported key, if the plan
/// has bf16 optimizer states, frozen parts or Reshard::hub
void require_live(const Plan& plan);

/// A LiveExecutor runs every rank of this process in its own thread and holds the ranks' parameters. All
/// processes of its world must make the same calls in the same order.
class LiveExecutor final : public Executor {
 public:
  /// Makes the ranks of this process. Plan, model and world must outlive the executor.
  /// @throws Error (input) if the plan's ranks or their devices differ from the world's, or if the model
  /// cannot run under the plan; OutOfMemory.
  LiveExecutor(const Plan& plan, const ModelSpec& model, World& world, const LiveOptions& options);
  ~LiveExecutor() override;

  /// Runs a step with learning rate zero, which takes the same time as any other step. If gradients are
  /// finite, weights stay unchanged but the optimizer's moments change. @throws what step() throws
  Timeline run(const Iteration& iteration, Detail detail) const override;

  /// Runs a training step, which changes the ranks' parameters. It is const because run() is const and the
  /// executor's own members do not change. The result's timeline holds the step's spans. If the program has
  /// only forwards (core/program/forwards.hpp), the step is an evaluation: it returns the loss, keeps no
  /// activations, and does not change parameters, gradients or optimizer states. `inputs` are the result of
  /// make_inputs() for this iteration; if empty, the ranks make them first.
  /// @throws Error (internal) for an iteration of a different plan; otherwise the exception of the first
  /// rank that failed, after which the run cannot continue.
  LiveResult step(const Iteration& iteration, const StepOptions& options, StepInputs inputs = {}) const;

  /// Makes the inputs of an iteration for the ranks of this process in host memory, from the executor's
  /// contents. It may be called while another step runs. @throws what the Contents throw
  StepInputs make_inputs(const Iteration& iteration) const;

  /// Returns whether ranks compute on the same cores that make inputs. If so, making inputs during a step
  /// slows the step down and saves no time.
  bool is_synchronous() const;

  /// Returns the names of the operations' variants on a rank of this process.
  VariantNames variant_names() const;

  /// Returns the device memory that a rank of this process holds now. Between two steps, it is the memory
  /// that the rank keeps from step to step. @throws Error (internal) for another process's rank
  Bytes in_use(int rank) const;

  /// In the leading process, returns the parameters, gradients or optimizer states of all ranks as whole
  /// tensors; in other processes, returns an empty map. All processes must call it.
  WholeTensors read(ParameterStore::Kind which);
  /// Sets the parameters, gradients or optimizer states of all ranks to the leading process's `tensors`. All
  /// processes must call it.
  /// @throws Error (input) that names a tensor that is missing or has a different shape
  void write(ParameterStore::Kind which, const WholeTensors& tensors);

  /// Writes parameters and optimizer states as the checkpoint of index.step in a run's folder, which all
  /// processes must see. Each rank writes its own file in its own thread. If several ranks hold the same
  /// data, only the first of them writes the data. All processes must call save(). The checkpoint gets the
  /// leading process's `index`, but the executor sets its dtype, files and tensors. It returns when the
  /// checkpoint is complete and on disk. If writing fails, no partial checkpoint remains.
  /// @throws Error (output) in all processes if one of them cannot write
  void save(const std::string& folder, const CheckpointIndex& index);
  /// Writes only the parameters, like save(), into an existing empty folder, from which a CheckpointReader
  /// can read them. All processes must call it. @throws Error (output)
  void save_weights(const std::string& folder);
  /// Sets parameters and optimizer states from a checkpoint. Each rank reads its part in its thread. All
  /// processes must call it with the same folder.
  /// @throws what CheckpointReader throws; Error (input) that names a tensor that is missing or has a
  /// different shape
  void load(const std::string& checkpoint);

 private:
  struct Rank;

  CheckpointIndex divided(const CheckpointIndex& index, bool weights_alone);
  void write_files(const std::string& folder, CheckpointIndex& index);
  void require_own(const Iteration& iteration, const StepOptions& options) const;
  BatchContent content_of(const Iteration& iteration, const Contents& contents) const;
  /// Entries say which communication ranks enter ahead of its instruction: receives, if the communicators
  /// need that (Communicator::posts_receives()), and gradient sums, which may start when their gradients are
  /// complete.
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
  std::vector<Stage> stages_;              // the plan's stages
  std::vector<std::size_t> first_groups_;  // by stage
  std::vector<std::unique_ptr<Rank>> ranks_;
  mutable std::mutex turn_;  // held during a step
};

}  // namespace dflop
