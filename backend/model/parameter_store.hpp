// A ParameterStore keeps a stage's weights, gradients and optimizer states in one rank's memory. A
// WholeTensor is a complete tensor, assembled from the parts that the ranks of all processes hold.
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

/// Returns the initial values of rows and columns of a whole tensor that is not drawn at random.
/// @pre parameter.initial is not Initial::normal
std::vector<double> values_without_seed(const Parameter& parameter, Range rows, Range columns);

/// A ModuleRates holds the factors by which modules multiply the learning rate; 0 freezes a module.
struct ModuleRates {
  double encoder = 1;
  double connector = 1;  ///< also for the norm before it, except in Qwen2-Audio, whose encoder has that norm
  double llm = 1;

  double of(const Parameter& parameter) const;
  bool operator==(const ModuleRates&) const = default;
};

/// An OptimizerStep describes one step of AdamW, with a learning rate for each module.
struct OptimizerStep : AdamWStep {
  ModuleRates rates;
};

/// A ParameterStore holds a stage's parameters in flat arrays: the weights that kernels read, the gradients
/// and, for one shard only, the optimizer states. If weights are less precise than sums, the optimizer
/// states include master weights. Parameters and shards are aligned for vector accesses. The gaps between
/// parameters, and the padding within parameters, are zeros.
class ParameterStore {
 public:
  /// Takes the initial weights from `source` or, if that is null, draws random values. Random values depend
  /// only on `seed`, the tensor's name and the position in the tensor, not on the rank that holds them.
  ParameterStore(const RankContext& rank, std::vector<Parameter> parameters, int shards, int shard,
                 std::uint64_t seed, const WeightSource* source = nullptr);

  const std::vector<Parameter>& list() const { return list_; }
  const Parameter& find(const std::string& name) const;

  /// Returns the matrix that kernels use: padded_rows() x padded_columns().
  Matrix weight(const Parameter& parameter);
  Sums gradient(const Parameter& parameter);

  /// Begins the gradient sums of a step, without reading or writing any gradient. In this step, the first
  /// matrix product for a parameter overwrites the old gradient, and gradient_to_add_to() zeroes the old
  /// gradient if nothing was added before. complete_gradients() zeroes gradients to which nothing was added.
  void begin_gradients() { begun_.assign(list_.size(), false); }
  /// Returns a parameter's gradient for adding to it; zeroes it first if this step has not added to it yet.
  Sums gradient_to_add_to(const RankContext& rank, const Parameter& parameter);
  /// Returns whether a matrix product must overwrite gradient(parameter) or add to it. The caller must then
  /// run that product: all later calls in this step return Beta::one.
  Beta enter_product(const Parameter& parameter);
  /// Returns all gradients as one row.
  Sums gradients() { return gradients_; }
  /// Completes the gradients. Call it once, after all backwards. Zeroes the gradients of fixed rows and of
  /// parameters that no backward reached. With sequence parallelism, it also sums over tp those gradients
  /// that each rank has summed over its own rows only. Gradients from value `end` on are already complete
  /// and may be in use by communication, so it leaves them alone.
  void complete_gradients(const RankContext& rank, std::int64_t end);
  /// Does only the zeroing of complete_gradients(), for the values [begin, end) of gradients().
  void zero_left_gradients(const RankContext& rank, std::int64_t begin, std::int64_t end);

  /// Adds to `sum`, [1, 1], the squared gradients of the parameters for which counts() is true.
  void add_squares(const RankContext& rank, const std::function<bool(const Parameter&)>& counts, Sums sum);
  /// Runs one optimizer step on this rank's shard. Frozen parameters keep their values. Weight decay applies
  /// only to parameters with `decayed`. Gradients in memory stay unchanged, even if the step scales them.
  void step(const RankContext& rank, const OptimizerStep& step);
  /// Gathers the weights of all shards on every rank of the group. Rank i of the group holds shard i.
  void gather(const RankContext& rank, const RankGroup& group);
  ModelState memory() const;

  /// A Kind selects a parameter's weights, gradients, first moments or second moments.
  enum class Kind : std::uint8_t { weight, gradient, moment1, moment2 };
  /// Returns the values of this rank's part of a tensor, row after row, as f64. For weights with master
  /// weights, returns the master weights. Moments and master weights outside this rank's shard are returned
  /// as zero.
  std::vector<double> read(const RankContext& rank, const Parameter& parameter, Kind which);
  /// Returns the range of the values of the rank's part of a parameter that the rank stores: those in its
  /// shard if the kind is sharded, otherwise all.
  Range held(const Parameter& parameter, Kind which) const;
  /// Returns whether this rank stores all values of its parameters, not only those in its shard.
  bool holds_all(Kind which) const { return shards_ == 1 || !is_sharded(which); }
  /// Sets the values of this rank's part of a tensor. Weights are rounded to their precision; master weights
  /// are not.
  void write(const RankContext& rank, const Parameter& parameter, Kind which,
             const std::vector<double>& values);

  /// Copies values of this rank's part of a tensor to `out`, starting at value `first`, without converting
  /// through f64. All of them must be in held().
  template <std::floating_point Real>
  void read_values(const RankContext& rank, const Parameter& parameter, Kind which, std::int64_t first,
                   std::span<Real> out);
  /// Sets values of this rank's part of a tensor like write(), starting at value `first`. Values outside
  /// held() are ignored.
  template <std::floating_point Real>
  void write_values(const RankContext& rank, const Parameter& parameter, Kind which, std::int64_t first,
                    std::span<const Real> values);

 private:
  template <typename Has>
  void place(const Has& has);
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
  /// Returns the memory from `place` of the parameter on, in the array of gradients or of the weights that
  /// kernels read.
  Memory in_all(const Parameter& parameter, Kind which, std::int64_t place);
  /// Returns the memory from `place` of the parameter on, in this rank's shard of moments or master weights.
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
  std::int64_t by_heads_ = 0;      // number of values with by_heads, which come first in the arrays
  std::int64_t by_held_rows_ = 0;  // number of values with by_heads or by_held_rows; the latter come second
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

/// Appends to `writer` those of a rank's values of a parameter that are in the range `held`.
void add_part(ByteWriter& writer, const Parameter& parameter, Range held, const std::vector<double>& values);
/// Copies every part that add_part() has written to its place in `tensors`. Values that are in no part are
/// zero.
void merge_parts(const std::string& parts, WholeTensors& tensors);

/// Returns the part of a whole tensor that a rank's `parameter` describes. @throws Error (input) that names
/// the tensor if its shape differs from the parameter's
std::vector<double> part_of(const WholeTensor& whole, const Parameter& parameter);

/// Returns bytes from which merge_parts() restores the same tensors.
std::string to_bytes(const WholeTensors& tensors);

}  // namespace dflop
