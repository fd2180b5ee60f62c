// A rank keeps the parameters of a stage in its memory: weights, gradients and the optimizer's states. Whole
// tensors are put together from the parts that ranks hold, in whatever process.
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

/// A ModuleRates has the parts of the learning rate that the modules take; 0 freezes one.
struct ModuleRates {
  double encoder = 1;
  double connector = 1;  ///< and the norm before it, but for Qwen2-Audio's, which is its encoder's
  double llm = 1;

  double of(const Parameter& parameter) const;
  bool operator==(const ModuleRates&) const = default;
};

/// An OptimizerStep is one step of AdamW with what differs between parameters.
struct OptimizerStep : AdamWStep {
  ModuleRates rates;
};

/// A ParameterStore has a stage's parameters in flat arrays of equal length, in which they and `shards` begin
/// where vector accesses want it, with zeros between and, of padded ones, within: weights as kernels read
/// them, gradients, and of one shard the optimizer's states. Where weights are less precise than sums, these
/// have the weights as the optimizer sees them (master weights), too.
class ParameterStore {
 public:
  /// Takes values from a source or, where that is null, draws values that depend on `seed` and the tensor's
  /// name and place alone, whoever holds them.
  ParameterStore(const RankContext& rank, std::vector<Parameter> parameters, int shards, int shard,
                 std::uint64_t seed, const WeightSource* source = nullptr);

  const std::vector<Parameter>& list() const { return list_; }
  const Parameter& find(const std::string& name) const;

  /// Returns what kernels work with: padded_rows() x padded_columns().
  Matrix weight(const Parameter& parameter);
  Sums gradient(const Parameter& parameter);

  /// Begins the sums of a step. No gradient is read or written for it: the first product of a parameter sets
  /// it, what else adds to it finds zeros, and so does complete_gradients() where nothing did.
  void begin_gradients() { begun_.assign(list_.size(), false); }
  /// Returns a gradient to which sums are added.
  Sums gradient_to_add_to(const RankContext& rank, const Parameter& parameter);
  /// Returns how a product gets into gradient(parameter), and takes it to be there from now on.
  Beta enter_product(const Parameter& parameter);
  /// Returns all gradients as one row.
  Sums gradients() { return gradients_; }
  /// Completes the gradients, once, when all backwards are done: with sequence parallelism those of which
  /// each rank has the part of its rows are summed over tp; those of rows that stay, and of parameters that
  /// no backward came to, are zero. Those from `end` on are complete already and may be under way to others:
  /// they are left alone.
  void complete_gradients(const RankContext& rank, std::int64_t end);
  /// Does so for values in [begin, end) of gradients() that are no sums over tp.
  void zero_left_gradients(const RankContext& rank, std::int64_t begin, std::int64_t end);

  /// Adds the squares of gradients to sum[1, 1]: of those parameters that `counts` says.
  void add_squares(const RankContext& rank, const std::function<bool(const Parameter&)>& counts, Sums sum);
  /// Does one step of the optimizer on this rank's shard. Frozen parameters keep their values, and what is
  /// not decayed has no weight decay. Gradients stay unchanged, whatever the step's factor for them.
  void step(const RankContext& rank, const OptimizerStep& step);
  /// Brings the shards of all ranks of a group together, which are in its order.
  void gather(const RankContext& rank, const RankGroup& group);
  ModelState memory() const;

  /// A Kind says which values of a parameter are meant: weights, gradients, first or second moments.
  enum class Kind : std::uint8_t { weight, gradient, moment1, moment2 };
  /// Returns the values of this rank's part of a tensor, row after row, as f64. Of moments, and of weights
  /// with masters, which are what is read then, those outside of this rank's shard are zero.
  std::vector<double> read(const RankContext& rank, const Parameter& parameter, Kind which);
  /// Returns which of a parameter's values this rank holds.
  Range held(const Parameter& parameter, Kind which) const;
  /// Returns whether this rank holds all values of its parameters, and not those of its shard alone.
  bool holds_all(Kind which) const { return shards_ == 1 || !is_sharded(which); }
  /// Sets the values of this rank's part of a tensor. Weights are rounded from what is written, and their
  /// masters are not.
  void write(const RankContext& rank, const Parameter& parameter, Kind which,
             const std::vector<double>& values);

  /// Copies some values of this rank's part of a tensor, from `first` on, without a detour by f64. All of
  /// them are held().
  template <std::floating_point Real>
  void read_values(const RankContext& rank, const Parameter& parameter, Kind which, std::int64_t first,
                   std::span<Real> out);
  /// Sets some of these values, from `first` on, as write() does. Those that are not held() are passed over.
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
  /// A Memory is the place of some values, and what they are there.
  struct Memory {
    void* data = nullptr;
    DType element = DType::f32;
  };
  /// Returns where weights as kernels read them, or gradients, are from a place of the parameter's on.
  Memory in_all(const Parameter& parameter, Kind which, std::int64_t place);
  /// Returns where this rank's shard has what is sharded.
  Memory in_shard(const Parameter& parameter, Kind which, std::int64_t place);
  template <std::floating_point Real>
  void put(const RankContext& rank, const Parameter& parameter, Memory memory, std::int64_t first,
           std::span<const Real> values);
  std::int64_t shard_size() const { return length_ / shards_; }

  std::vector<Parameter> list_;
  std::vector<const Parameter*> by_place_;  // in the flat arrays
  std::vector<bool> begun_;                 // of each parameter: its gradient has some sums of this step
  int shards_;
  int shard_;
  std::int64_t by_held_rows_ = 0;  // values at the beginning of the arrays
  std::int64_t length_ = 0;
  DType dtype_;
  Tensor weights_;
  SumTensor gradients_;
  SumTensor moment1_;  // of the shard
  SumTensor moment2_;
  SumTensor master_;
};

/// A WholeTensor is a tensor as no rank holds it, whatever the plan: [rows, columns], row after row.
struct WholeTensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;
};
using WholeTensors = std::map<std::string, WholeTensor>;

/// Appends those of a rank's values of a parameter that are in `held`.
void add_part(ByteWriter& writer, const Parameter& parameter, Range held, const std::vector<double>& values);
/// Puts all parts that add_part() has appended in their places; a tensor's values that are in none are zero.
void merge_parts(const std::string& parts, WholeTensors& tensors);

/// Returns a rank's part of a whole tensor. @throws Error (input) naming it where it has another shape.
std::vector<double> part_of(const WholeTensor& whole, const Parameter& parameter);

/// Returns bytes from which merge_parts() makes the same tensors.
std::string to_bytes(const WholeTensors& tensors);

}  // namespace dflop
