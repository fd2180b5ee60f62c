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

/// A BenchRole is a rank's role in a measurement. Only ranks that measure flush the device's cache; ranks
/// that keep the device busy do not.
enum class BenchRole { measures, keeps_busy };

/// A UnitBench measures the time and memory of the passes of single units on one rank.
class UnitBench {
 public:
  /// Makes random parameters for one layer of each module and for all other units. All ranks of a tp group
  /// must have the same role. The referenced objects must outlive the bench.
  /// @throws Error (input) if stage_parameter_list() rejects the model; OutOfMemory
  UnitBench(const ModelSpec& model, std::uint64_t seed, const RankContext& rank, BenchRole role);

  /// Runs one forward and backward of a unit on `tokens` tokens in sequences of `length` tokens, and returns
  /// the times. `length` must divide `tokens`; for units without attention, it is 0. The time of a layer's
  /// linear part is a difference, which may be negative: the time of a whole layer on short sequences minus
  /// the time of its attention. @throws OutOfMemory
  ProfilePoint run(ProfileUnit unit, std::int64_t tokens, std::int64_t length);

  /// Measures passes over `tokens` tokens on this rank. Sets the profile's values for the memory that passes
  /// keep, and for the memory that they need while they run.
  void measure_memory(std::int64_t tokens, TpProfile& profile);

 private:
  /// Evicts the caches, because in a run the rank's other layers do so before a layer runs again. Call it
  /// before making a pass's input, because the input comes from the previous pass and is in the caches.
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
  /// Passes are a unit's forward and backward, which are measured, and functions that make their inputs,
  /// which are not measured. The forward stores the data that the backward reads in the tape. Forward and
  /// backward may move from their arguments.
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
  Passes<Connectors::Tape> connector(std::int64_t tokens);
  Passes<TokenTape> embedding(std::int64_t tokens);
  Passes<LmHeadTape> head(std::int64_t tokens);

  template <typename Tape>
  ProfilePoint time(const Passes<Tape>& passes, std::int64_t tokens, std::int64_t length = 0);
  ProfilePoint run_linear(const std::string& module, const TransformerSpec& spec, std::int64_t tokens);

  /// Memory holds bytes per token: those that stay allocated after the forward, and those that forward and
  /// backward need while they run.
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
  std::unique_ptr<InputEmbedding> input_;  ///< null if there is no encoder; connectors_ is then empty
  std::optional<Connectors> connectors_;
  TokenEmbedding embedding_;
  LmHead head_;
  SumTensor loss_;
  SumTensor other_;
  bool flushes_;       // whether to flush the device's cache (Device::cache())
  SumTensor flushed_;  // larger than the flushed cache; only on the rank of the group that writes it
  SumTensor meeting_;
  double forward_host_s_ = 0;  // host time of the last timed forward
  std::unique_ptr<DeviceEvent> begin_;
  std::unique_ptr<DeviceEvent> end_;
};

}  // namespace dflop
