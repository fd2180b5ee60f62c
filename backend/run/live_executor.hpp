// Runs the Programs of one plan on real devices: every rank of this process in a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/model/tensor_parts.hpp"
#include "backend/run/live_rank.hpp"
#include "backend/world.hpp"
#include "core/timeline.hpp"

namespace dflop {

struct LiveOptions {
  DType dtype = DType::f32;
  std::uint64_t seed = 1;  ///< of the parameters' first values
};

/// Of all ranks, in the process that leads the world; nothing in its others.
struct LiveResult {
  Timeline timeline;
  double loss = 0;  ///< mean over the trained tokens of the batch
};

class LiveExecutor {
 public:
  /// `layout` is any Program of the plan: it has the groups and stages. Plan, model and world outlive it.
  /// @throws Error (input) where the plan's ranks are not those of the world, or the model cannot be run as
  /// the plan says; OutOfMemory.
  LiveExecutor(const Plan& plan, const ModelSpec& model, const Program& layout, World& world,
               const LiveOptions& options);
  ~LiveExecutor();

  /// One iteration. @throws Error (internal) for a program of other stages or ranks than the layout's, else
  /// what the first rank that failed has thrown; the run cannot be gone on with then.
  LiveResult run(const LiveStep& step);

  /// Device memory that a rank of this process holds now: between two runs, what it keeps from one to the
  /// next. @throws Error (internal) for another process's rank.
  Bytes in_use(int rank) const;

  /// Parameters, gradients or optimizer states of all ranks, put together from their parts, in the process
  /// that leads the world; none in its others. All processes call it, as write().
  WholeTensors read(ParameterStore::Kind which);
  /// Sets what all ranks hold of them, as the leading process gives them.
  /// @throws Error (input) naming a tensor that is missing or has another shape.
  void write(ParameterStore::Kind which, const WholeTensors& tensors);

 private:
  struct Rank;

  void make_ranks(const Plan& plan, const ModelSpec& model, const Program& layout,
                  const LiveOptions& options);
  static void add_record(ByteWriter& writer, const Rank& rank, LiveRankResult result, Nanoseconds offset);
  LiveResult joined(const Program& program, const std::vector<std::string>& processes) const;
  void set(ParameterStore::Kind which, const WholeTensors& tensors);

  World& world_;
  std::vector<Stage> stages_;              // of the plan
  std::vector<std::size_t> first_groups_;  // by stage
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace dflop
