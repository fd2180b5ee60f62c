// A UnitBench runs single units of a model on one rank and measures the time and memory of each pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/model/ends.hpp"
#include "backend/model/input_embedding.hpp"
#include "backend/model/transformer_layer.hpp"
#include "core/measured/profile.hpp"

namespace dflop {

/// A BenchRole is a rank's role in a measurement. Ranks that measure flush the device's cache; ranks that
/// keep the device busy do not.
enum class BenchRole { measures, keeps_busy };

/// A UnitBench measures the time and memory of the passes of single units on one rank.
class UnitBench {
 public:
  /// Makes random parameters for one layer of each module and for all other parts. All ranks of a tp group
  /// must have the same role. The referenced objects must outlive it.
  /// @throws the errors (input) of stage_parameter_list(); OutOfMemory.
  UnitBench(const ModelSpec& model, std::uint64_t seed, const RankContext& rank, BenchRole role);

  /// Runs one forward and backward of a unit on sequences of `length` tokens, which must divide `tokens`; for
  /// units without attention, length is 0. The time of a layer's linear part is the time of a whole layer on
  /// short sequences minus the time of its attention on these sequences; the difference may be negative.
  /// @throws OutOfMemory
  ProfilePoint run(ProfileUnit unit, std::int64_t tokens, std::int64_t length);

  /// Measures the memory that this rank's passes over `tokens` tokens keep, and that they need while they
  /// run, and sets it in `profile`.
  void measure_memory(std::int64_t tokens, TpProfile& profile);

 private:
  /// Evicts the caches, as the rank's other layers do in a run before the same layer runs again. The input
  /// that a pass gets from the previous pass is made after this call.
  void forget() { rank_.kernels.zero(Sums(other_)); }
  /// Flushes the device's cache, if it has one, before a pass.
  void flush();
  void reserve_values(std::int64_t rows);
  Tensor random_tensor(std::int64_t rows, std::int64_t columns);
  /// Returns the rank's part of `rows` random rows between the tensor-parallel regions.
  Tensor random_held(std::int64_t rows, std::int64_t columns) {
    return random_tensor(held_rows(rank_, rows), columns);
  }
  template <typename Work>
  double timed(const Work& work);
  /// Passes are a unit's forward and backward, and the functions that make their inputs. Only forward and
  /// backward are measured. A forward stores in the tape the data that the backward reads. Both may move from
  /// their arguments.
  template <typename Tape>
  struct Passes {
    std::function<Tensor()> make_input;
    std::function<Tensor(Tensor& x, Tape& tape)> forward;
    std::function<Tensor(Tape& tape)> make_gradient;                  ///< makes the gradient of the output
    std::function<Tensor(Tensor& d_out, Tape& tape)> backward_input;  ///< null if inputs have no gradient
    std::function<void(Tape& tape)> backward_weight;  ///< null if it is part of backward_input
  };
  struct AttentionTape {
    Tensor qkv;
    Tensor heads;
    SumTensor statistics;
  };
  Passes<InputTape> patches(std::int64_t tokens);
  /// Returns sequences of `length` rows for one of the model's modules. `length` divides `tokens`.
  PackedSequences packed(const TransformerSpec& spec, std::int64_t tokens, std::int64_t length);
  /// Returns the passes of a layer of "encoder" or "llm" on short sequences.
  Passes<LayerTape> layer(const std::string& module, const TransformerSpec& spec, Recomputation mode,
                          std::int64_t tokens);
  Passes<AttentionTape> attention(const TransformerSpec& spec, std::int64_t tokens, std::int64_t length);
  Passes<ConnectorTape> connector(std::int64_t tokens);
  Passes<TokenTape> embedding(std::int64_t tokens);
  Passes<LmHeadTape> head(std::int64_t tokens);

  template <typename Tape>
  ProfilePoint time(const Passes<Tape>& passes, std::int64_t tokens, std::int64_t length = 0);
  ProfilePoint run_linear(const std::string& module, const TransformerSpec& spec, std::int64_t tokens);

  /// Memory holds the bytes per token that passes keep, and that they need while they run.
  struct Memory {
    double kept = 0;
    double forward = 0;
    double backward = 0;
  };
  template <typename Tape>
  Memory memory_of(const Passes<Tape>& passes, std::int64_t tokens);

  const ModelSpec& model_;
  const RankContext& rank_;
  std::vector<float> values_;
  Tensor random_;  // the same values on the device, repeated
  ParameterStore store_;
  SequencePacker encoder_packer_;
  SequencePacker llm_packer_;
  std::unique_ptr<InputEmbedding> input_;  ///< null if there is no encoder; connector_ is then empty
  std::optional<Connector> connector_;
  TokenEmbedding embedding_;
  LmHead head_;
  SumTensor loss_;
  SumTensor other_;
  bool flushes_;       // whether to flush a cache from which training steps do not profit
  SumTensor flushed_;  // larger than that cache; only on the rank of the group that writes it
  SumTensor meeting_;
  double forward_host_s_ = 0;  // host time of the last timed forward
  std::unique_ptr<DeviceEvent> begin_;
  std::unique_ptr<DeviceEvent> end_;
};

}  // namespace dflop
