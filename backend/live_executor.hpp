// Runs the Programs of one plan on real devices: every rank of this process in a thread of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/live_rank.hpp"
#include "backend/world.hpp"
#include "core/timeline.hpp"

namespace dflop {

struct LiveOptions {
  DType dtype = DType::f32;
  std::uint64_t seed = 1;  ///< of the parameters' first values
};

struct LiveResult {
  Timeline timeline;
  double loss = 0;  ///< mean over the trained tokens of the batch
};

/// A whole tensor, whatever the plan: [rows, columns], row after row.
struct WholeTensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;
};
using WholeTensors = std::map<std::string, WholeTensor>;

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

  /// Parameters, gradients or optimizer states of this process's ranks, put together from their parts.
  WholeTensors read(ParameterStore::Kind which);
  /// Sets what this process's ranks hold of them.
  /// @throws Error (input) naming a tensor that is missing or has another shape.
  void write(ParameterStore::Kind which, const WholeTensors& tensors);

 private:
  struct Rank;

  World& world_;
  std::vector<Stage> stages_;  // of the plan
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace dflop
