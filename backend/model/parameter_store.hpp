// A ParameterStore keeps a stage's weights, gradients and optimizer states in one rank's memory. The
// WholeTensors of a model are assembled from the parts that all ranks hold.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/model/parameter_list.hpp"
#include "backend/model/tensor.hpp"
#include "backend/model/weight_source.hpp"
#include "core/model.hpp"
#include "core/support/bytes.hpp"

namespace dflop {

/// A ModuleRates holds the factors by which modules multiply the learning rate; 0 freezes a module.
struct ModuleRates {
  double encoder = 1;
  double connector = 1;  ///< also for the norm before it; in Qwen2-Audio that norm belongs to the encoder
  double llm = 1;

  double of(const Parameter& parameter) const;
  bool operator==(const ModuleRates&) const = default;
};

/// An OptimizerStep describes one step of AdamW, with a learning rate for each module.
struct OptimizerStep : AdamWStep {
  ModuleRates rates;
};

/// A ParameterStore holds a stage's parameters in flat arrays: the weights as kernels read them, the
/// gradients, and one shard of the optimizer states. If weights are less precise than sums, the optimizer
/// states include master weights. Parameters and shards are aligned for vector accesses; the gaps, and the
/// padding within padded parameters, are zeros.
class ParameterStore {
 public:
  /// Takes values from `source` or, if it is null, draws random values. Random values depend only on `seed`,
  /// the tensor's name and the position in the tensor, not on the rank that holds them.
  ParameterStore(const RankContext& rank, std::vector<Parameter> parameters, int shards, int shard,
                 std::uint64_t seed, const WeightSource* source = nullptr);

  const std::vector<Parameter>& list() const { return list_; }
  const Parameter& find(const std::string& name) const;

  /// Returns the matrix that kernels use: padded_rows() x padded_columns().
  Matrix weight(const Parameter& parameter);
  Sums gradient(const Parameter& parameter);

  /// Begins the gradient sums of a step without reading or writing any gradient. The first product for a
  /// parameter overwrites its old gradient; gradient_to_add_to() zeroes an old gradient first;
  /// complete_gradients() zeroes old gradients that remain.
  void begin_gradients() { begun_.assign(list_.size(), false); }
  /// Returns a gradient to which the caller adds sums. Zeroes it first if it has no sums of this step.
  Sums gradient_to_add_to(const RankContext& rank, const Parameter& parameter);
  /// Returns whether the next product must overwrite gradient(parameter) or be added to it. The caller must
  /// then write the product.
  Beta enter_product(const Parameter& parameter);
  /// Returns all gradients as one row.
  Sums gradients() { return gradients_; }
  /// Completes the gradients. Call it once, after all backwards. With sequence parallelism it sums over tp
  /// the gradients that each rank has summed over its own rows only. It zeroes the gradients of fixed rows
  /// and of parameters that no backward reached. Gradients from value `end` on are already complete and may
  /// be in use by communication; they are not touched.
  void complete_gradients(const RankContext& rank, std::int64_t end);
  /// Zeroes, like complete_gradients(), the gradients of fixed rows and of parameters that no backward
  /// reached, within the values [begin, end) of gradients(). These must not need a sum over tp.
  void zero_left_gradients(const RankContext& rank, std::int64_t begin, std::int64_t end);

  /// Adds the squared gradients of the parameters that `counts` selects to sum[1, 1].
  void add_squares(const RankContext& rank, const std::function<bool(const Parameter&)>& counts, Sums sum);
  /// Runs one optimizer step on this rank's shard. Frozen parameters keep their values. Weight decay applies
  /// only to parameters with `decayed`. The stored gradients stay unchanged, even if the step scales them.
  void step(const RankContext& rank, const OptimizerStep& step);
  /// Gathers the weights of all shards on every rank of the group. The shards are in the group's order.
  void gather(const RankContext& rank, const RankGroup& group);
  ModelState memory() const;

  /// A Kind selects values of a parameter: weights, gradients, first or second moments.
  enum class Kind : std::uint8_t { weight, gradient, moment1, moment2 };
  /// Returns the values of this rank's part of a tensor, row after row, as f64. If weights have masters, it
  /// returns the masters. Moments and masters outside this rank's shard are zero.
  std::vector<double> read(const RankContext& rank, const Parameter& parameter, Kind which);
  /// Returns the range of a parameter's values that this rank holds.
  Range held(const Parameter& parameter, Kind which) const;
  /// Returns whether this rank holds all values of its parameters, not only its shard of them.
  bool holds_all(Kind which) const { return shards_ == 1 || !is_sharded(which); }
  /// Sets the values of this rank's part of a tensor. Weights are rounded to their precision; master weights
  /// are not.
  void write(const RankContext& rank, const Parameter& parameter, Kind which,
             const std::vector<double>& values);

  /// Copies out.size() values of this rank's part of a tensor, starting at value `first`, without a detour
  /// through f64. All of them must be in held().
  template <std::floating_point Real>
  void read_values(const RankContext& rank, const Parameter& parameter, Kind which, std::int64_t first,
                   std::span<Real> out);
  /// Sets some values of this rank's part of a tensor, starting at value `first`, like write(). Values
  /// outside held() are ignored.
  template <std::floating_point Real>
  void write_values(const RankContext& rank, const Parameter& parameter, Kind which, std::int64_t first,
                    std::span<const Real> values);

 private:
  void place(bool by_held_rows);
  template <typename Alike, typename Visit>
  void for_each_run(const Range& part, const Alike& alike, const Visit& visit) const;
  Sums gradients_of(const Range& range);
  std::size_t index_of(const Parameter& parameter) const {
    return static_cast<std::size_t>(&parameter - list_.data());
  }
  void step_range(const RankContext& rank, const Range& range, const AdamWStep& step);
  void load(const RankContext& rank, const WeightSource& source);
  void unpack(const RankContext& rank, const Parameter& parameter, std::int64_t first,
              const StoredNumbers& numbers, Sums not_finite);
  void initialize(const RankContext& rank, std::uint64_t seed);
  bool has_master() const { return bytes_of(dtype_) < sum_bytes_of(dtype_); }
  bool is_sharded(Kind which) const {
    return which == Kind::moment1 || which == Kind::moment2 || (which == Kind::weight && has_master());
  }
  /// A Memory is the address and type of some values.
  struct Memory {
    void* data = nullptr;
    DType element = DType::f32;
  };
  /// Returns the memory of kernel-read weights or of gradients, from a place in the parameter on.
  Memory in_all(const Parameter& parameter, Kind which, std::int64_t place);
  /// Returns the memory of sharded values in this rank's shard.
  Memory in_shard(const Parameter& parameter, Kind which, std::int64_t place);
  template <std::floating_point Real>
  void put(const RankContext& rank, const Parameter& parameter, Memory memory, std::int64_t first,
           std::span<const Real> values);
  std::int64_t shard_size() const { return length_ / shards_; }

  std::vector<Parameter> list_;
  std::vector<const Parameter*> by_place_;  // in the order of the flat arrays
  std::vector<bool> begun_;                 // per parameter: whether its gradient has sums of this step
  int shards_;
  int shard_;
  std::int64_t by_held_rows_ = 0;  // number of such values, which begin the arrays
  std::int64_t length_ = 0;
  DType dtype_;
  Tensor weights_;
  SumTensor gradients_;
  SumTensor moment1_;  // of the shard
  SumTensor moment2_;
  SumTensor master_;
};

/// A WholeTensor is a complete tensor, independent of how a plan splits it: [rows, columns], row after row.
struct WholeTensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;
};
using WholeTensors = std::map<std::string, WholeTensor>;

/// Appends the values of a rank's parameter that are in the range `held`.
void add_part(ByteWriter& writer, const Parameter& parameter, Range held, const std::vector<double>& values);
/// Copies every part that add_part() has written to `parts` into its tensor. Values that are in no part are
/// zero.
void merge_parts(const std::string& parts, WholeTensors& tensors);

/// Returns a rank's part of a whole tensor. @throws Error (input) that names the tensor if its shape differs.
std::vector<double> part_of(const WholeTensor& whole, const Parameter& parameter);

/// Returns bytes from which merge_parts() restores the same tensors.
std::string to_bytes(const WholeTensors& tensors);

}  // namespace dflop
