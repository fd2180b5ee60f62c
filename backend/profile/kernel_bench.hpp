// A KernelBench measures single calls of operations that have variants, on one rank. Before each call, it
// fills the caches with other data, as in a training step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/model/tensor.hpp"
#include "core/kernel_choice/kernel_key.hpp"
#include "core/kernel_choice/kernel_table.hpp"
#include "core/units.hpp"

namespace dflop {

/// A KernelBench makes the arguments of one call at a time and measures the call. Argument values are random.
class KernelBench {
 public:
  /// The referenced objects must outlive it. @throws OutOfMemory
  KernelBench(const RankContext& rank, std::uint64_t seed);

  /// Allocates and fills the arguments of a call. For attention, every sequence has the call's length,
  /// except that the last one has the remaining tokens. @throws OutOfMemory
  void prepare(const KernelCall& call);
  /// Runs the prepared call with a variant of the operation and returns its time. @pre `variant` is a
  /// variant of the operation
  double run_ns(std::size_t variant);
  /// Returns the number of variants of the prepared call's operation.
  std::size_t variants() const { return variants_; }

 private:
  Tensor random_tensor(std::int64_t rows, std::int64_t columns);
  void prepare_product(const KernelCall& call);
  void prepare_attention(const KernelCall& call);
  void prepare_activation(const KernelCall& call);
  void prepare_activation_backward(const KernelCall& call);

  const RankContext& rank_;
  std::vector<float> values_;
  SumTensor other_;
  std::unique_ptr<DeviceEvent> begin_;
  std::unique_ptr<DeviceEvent> end_;
  std::size_t variants_ = 0;
  std::function<void(std::size_t variant)> run_;
};

/// A TunedCall is a call to measure. `weight` is its frequency in training steps relative to other calls.
struct TunedCall {
  KernelCall call;
  double weight = 1;
};

struct TuningOptions {
  std::uint64_t seed = 1;  ///< seed of the argument values
  Seconds budget{20};
  /// tune_kernels() calls this before each round of variants. If it throws, the measurement ends.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// LeftOut counts the calls that were not measured, by reason.
struct LeftOut {
  std::size_t without_memory = 0;
  std::size_t too_long = 0;  ///< calls that take longer than the remaining budget

  bool operator==(const LeftOut&) const = default;
};

/// Measures the variants of calls and adds the results to `table`. Every variant of a call has one warm-up
/// run and 2 measured runs. Then variants whose shortest run exceeds 1.5 times the best are dropped. After 6
/// runs, variants whose mean exceeds 1.15 times the best mean are dropped too, as in the rounds of a
/// KernelPlanner. The default variant always stays. The remaining variants run in turns, up to 30 times
/// each, until the call's share of the budget is spent. Half of the remaining budget is shared in proportion
/// to the calls' expected times, the other half equally. Calls for which there is not enough time or memory
/// are left out. A small call is measured first to predict the times of larger ones.
/// @throws what `progress` throws; the table then holds the results so far
LeftOut tune_kernels(const RankContext& rank, const std::vector<TunedCall>& calls,
                     const TuningOptions& options, KernelTable& table);

}  // namespace dflop
