// A KernelBench measures single calls of operations that have variants, on one rank, as steps meet them:
// with caches that hold something else.
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

/// A KernelBench makes the arguments of one call after the other. Their values are drawn from a seed.
class KernelBench {
 public:
  /// What is referred to outlives it. @throws OutOfMemory
  KernelBench(const RankContext& rank, std::uint64_t seed);

  /// Makes the arguments of a call, in memory of its own: sequences are of the call's length, and the last
  /// one has what is left. @throws OutOfMemory
  void prepare(const KernelCall& call);
  /// Runs the prepared call and returns what it took. @pre variant is one of the operation's
  double run_ns(std::size_t variant);
  /// Returns how many variants the prepared call's operation has.
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

/// A TunedCall is to be measured; `weight` is how often steps make it beside others.
struct TunedCall {
  KernelCall call;
  double weight = 1;
};

struct TuningOptions {
  std::uint64_t seed = 1;  ///< of values
  Seconds budget{20};
  /// It is called before each round of variants. What it throws ends the measuring.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

/// LeftOut says how many calls were not measured, and why.
struct LeftOut {
  std::size_t without_memory = 0;
  std::size_t too_long = 0;  ///< than the budget that was left

  bool operator==(const LeftOut&) const = default;
};

/// Measures the variants of calls and adds them to a table of the rank's variants. All run 2 times; then
/// those go whose shortest run takes over 1.5 times the best's, after 6 runs those whose mean is over 1.15
/// times that, as in the rounds of a KernelPlanner. The default always stays. A call's part of the budget is
/// that of its expected time; what is left of it goes into runs of those that remain, in turns, at most 30.
/// Calls for which there is no time are left out, as are those for which there is no memory. A small
/// call is measured first, by which the time of larger ones is known before they run.
/// @throws what `progress` throws: the table then has what was measured by then
LeftOut tune_kernels(const RankContext& rank, const std::vector<TunedCall>& calls,
                     const TuningOptions& options, KernelTable& table);

}  // namespace dflop
