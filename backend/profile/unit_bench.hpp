// A UnitBench runs single parts of a model on one rank, and says what each pass took and what it keeps.
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

/// A BenchRole says what a rank is for: ranks that measure find the device's cache flushed; those that keep
/// it busy leave it alone.
enum class BenchRole { measures, keeps_busy };

/// A UnitBench measures the passes of single units on one rank: their times and their memory.
class UnitBench {
 public:
  /// Makes parameters of one layer of each module and of all else, drawn from `seed`. All ranks of a tp group
  /// have one role. What is referred to outlives it. @throws Error (input) as stage_parameter_list();
  /// OutOfMemory.
  UnitBench(const ModelSpec& model, std::uint64_t seed, const RankContext& rank, BenchRole role);

  /// Runs one forward and backward of a unit on sequences of `length` tokens, which divides `tokens`; of
  /// units without attention length is 0. The linear part of a layer is a whole layer on short sequences less
  /// what its attention takes on them, which may come out negative. @throws OutOfMemory
  ProfilePoint run(ProfileUnit unit, std::int64_t tokens, std::int64_t length);

  /// Sets what this rank's passes of so many tokens keep, and need while they run.
  void measure_memory(std::int64_t tokens, TpProfile& profile);

 private:
  /// Lets caches hold something else, as they do where a run comes to a pass: since the same layer was last
  /// at work the others of its rank have been. What a pass gets from the one before it is made afterwards.
  void forget() { rank_.kernels.zero(Sums(other_)); }
  /// Flushes the device's cache, where it has one, before a pass.
  void flush();
  void reserve_values(std::int64_t rows);
  Tensor random_tensor(std::int64_t rows, std::int64_t columns);
  /// Returns what the rank holds of so many rows between the regions of tensor parallelism.
  Tensor random_held(std::int64_t rows, std::int64_t columns) {
    return random_tensor(held_rows(rank_, rows), columns);
  }
  template <typename Work>
  double timed(const Work& work);
  /// Passes are the forward and backward of one unit, and what goes into them, which is not measured. A
  /// forward leaves in the tape what the backward reads; both may take what they are given.
  template <typename Tape>
  struct Passes {
    std::function<Tensor()> make_input;
    std::function<Tensor(Tensor& x, Tape& tape)> forward;
    std::function<Tensor(Tape& tape)> make_gradient;                  ///< of the output
    std::function<Tensor(Tensor& d_out, Tape& tape)> backward_input;  ///< null where inputs have no gradient
    std::function<void(Tape& tape)> backward_weight;  ///< null where it comes with the input's gradient
  };
  struct AttentionTape {
    Tensor qkv;
    Tensor heads;
    SumTensor statistics;
  };
  Passes<InputTape> patches(std::int64_t tokens);
  /// Returns sequences of `length` rows of one of the model's modules, `length` dividing `tokens`.
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

  /// Memory says what passes keep, and need while they run, in bytes a token.
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
  Tensor random_;  // the same on the device, over and over
  ParameterStore store_;
  SequencePacker encoder_packer_;
  SequencePacker llm_packer_;
  std::unique_ptr<InputEmbedding> input_;  ///< null, and no connector, where there is no encoder
  std::optional<Connector> connector_;
  TokenEmbedding embedding_;
  LmHead head_;
  SumTensor loss_;
  SumTensor other_;
  bool flushes_;       // a cache that steps do not profit from
  SumTensor flushed_;  // larger than that, in the one rank of the group that writes it
  SumTensor meeting_;
  double forward_host_s_ = 0;  // that the host took for the forward that was timed last
  std::unique_ptr<DeviceEvent> begin_;
  std::unique_ptr<DeviceEvent> end_;
};

}  // namespace dflop
