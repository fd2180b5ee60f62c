// The parameters that a rank holds of a stage: which part of which tensor, and where in flat memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/model/range.hpp"
#include "backend/model/tensor.hpp"
#include "core/model.hpp"
#include "core/model_state.hpp"
#include "core/program.hpp"

namespace dflop {

enum class Initial : std::uint8_t { normal, ones, zeros };

/// The part of one tensor that a rank holds: some rows, one run of columns.
struct Parameter {
  std::string name;          ///< of the whole tensor, as "llm.layers.3.qkv"
  std::int64_t rows = 0;     ///< of the whole
  std::int64_t columns = 0;  ///< of the whole
  std::vector<Range> row_ranges;
  Range column_range;
  Initial initial = Initial::normal;
  /// Whole on every tp rank, its gradient a sum over the rows that a rank holds: with sequence parallelism
  /// only the tp ranks' sum is the gradient.
  bool by_held_rows = false;
  std::int64_t offset = 0;  ///< of its first value in the flat arrays

  std::int64_t held_rows() const;
  std::int64_t held_columns() const { return column_range.size(); }
  std::int64_t count() const { return held_rows() * held_columns(); }
};

/// Which layers of the whole model a stage holds, and whether its pixels come in here.
struct StagePlace {
  Stage stage;
  int first_encoder_layer = 0;
  int first_llm_layer = 0;
  bool patches = false;  ///< the stage with the first encoder layer
};

/// Per stage, in model order.
std::vector<StagePlace> stage_places(const std::vector<Stage>& stages);

/// What tp rank `tp_rank` of a stage holds, in a fixed order. `patch_values`: of one encoder token.
/// @throws Error (input) where tp does not divide heads, KV heads, widths or the vocabulary, for tied
/// embeddings, and for connectors that tp cannot split.
std::vector<Parameter> stage_parameter_list(const ModelSpec& model, const StagePlace& place, int tp_rank,
                                            int patch_values);

/// A stage's parameters in flat arrays of equal length, in which they and `shards` begin where vector
/// accesses want it, with zeros between: weights as kernels read them, gradients, and of one shard the
/// optimizer's states. Where weights are less precise than sums, these have the weights as the optimizer sees
/// them (master weights), too.
class ParameterStore {
 public:
  /// Values depend on `seed` and the tensor's name and place alone, whoever holds them.
  ParameterStore(const RankContext& rank, std::vector<Parameter> parameters, int shards, int shard,
                 std::uint64_t seed);

  const std::vector<Parameter>& list() const { return list_; }
  const Parameter& find(const std::string& name) const;

  Matrix weight(const Parameter& parameter);
  Sums gradient(const Parameter& parameter);

  /// All gradients, one row.
  Sums gradients() { return gradients_; }
  void zero_gradients(const RankContext& rank);
  /// With sequence parallelism: sums those gradients over tp of which each rank has the part of its rows.
  /// Once, when all backwards are done.
  void sum_over_tp(const RankContext& rank);

  /// One step of this rank's shard.
  void step(const RankContext& rank, const AdamWStep& step);
  /// Brings the shards of all ranks of a group together, which are in its order.
  void gather(const RankContext& rank, const RankGroup& group);
  ModelState memory() const;

  /// Values of this rank's part of a tensor, row after row, as f64; `which`: weight, gradient, first or
  /// second moment. Of moments, and of weights with masters, which are what is read then, those outside of
  /// this rank's shard are zero.
  enum class Kind : std::uint8_t { weight, gradient, moment1, moment2 };
  std::vector<double> read(const RankContext& rank, const Parameter& parameter, Kind which);
  /// Which of a parameter's values this rank holds.
  Range held(const Parameter& parameter, Kind which) const;
  /// Whether this rank holds all values of its parameters, and not those of its shard alone.
  bool holds_all(Kind which) const { return shards_ == 1 || !is_sharded(which); }
  /// Weights are rounded from what is written, and their masters are not.
  void write(const RankContext& rank, const Parameter& parameter, Kind which,
             const std::vector<double>& values);

 private:
  void place(bool by_held_rows);
  void initialize(const RankContext& rank, std::uint64_t seed);
  bool has_master() const { return bytes_of(dtype_) < sum_bytes_of(dtype_); }
  bool is_sharded(Kind which) const;
  void* in_shard(const Parameter& parameter, const Range& range, Kind which);
  std::int64_t shard_size() const { return length_ / shards_; }

  std::vector<Parameter> list_;
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

}  // namespace dflop
