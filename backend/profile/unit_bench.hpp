// Runs single parts of a model on one rank and says what each pass took.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/model/connector.hpp"
#include "backend/model/language_ends.hpp"
#include "backend/model/patch_embedding.hpp"
#include "backend/model/transformer_layer.hpp"
#include "traces/files/profile.hpp"

namespace dflop {

/// Ranks that measure find the device's cache flushed; those that keep it busy leave it alone.
enum class BenchRole { measures, keeps_busy };

class UnitBench {
 public:
  /// Parameters of one layer of each module and of all ends, drawn from `seed`. All ranks of a tp group have
  /// one role. What is referred to outlives it. @throws Error (input) as stage_parameter_list(); OutOfMemory.
  UnitBench(const ModelSpec& model, std::uint64_t seed, const RankContext& rank, BenchRole role);

  /// One forward and backward of a unit on sequences of `length` tokens, which divides `tokens`; of units
  /// without attention length is 0. The linear part of a layer is a whole layer on short sequences less what
  /// its attention takes on them, which may come out negative. @throws OutOfMemory
  ProfilePoint run(ProfileUnit unit, std::int64_t tokens, std::int64_t length);

  /// Sets what this rank's passes of so many tokens keep, and need while they run.
  void measure_memory(std::int64_t tokens, TpProfile& profile);

 private:
  using Layers = std::array<TransformerLayer, 3>;  // by Recomputation

  /// Lets caches hold something else, as they do where a run comes to a pass: since the same layer was last
  /// at work the others of its rank have been. What a pass gets from the one before it is made afterwards.
  void forget();
  /// Flushes the device's cache before a pass, where there is one.
  void flush();
  Tensor random_tensor(std::int64_t rows, std::int64_t columns);
  /// What the rank holds of so many rows between the regions of tensor parallelism.
  Tensor random_held(std::int64_t rows, std::int64_t columns);
  template <typename Work>
  double timed(const Work& work);
  ProfilePoint run_patches(std::int64_t tokens);
  ProfilePoint run_layer(const TransformerLayer& layer, const TransformerSpec& spec, std::int64_t tokens,
                         std::int64_t length);
  ProfilePoint run_attention(const TransformerSpec& spec, std::int64_t tokens, std::int64_t length);
  ProfilePoint run_linear(const Layers& layers, const TransformerSpec& spec, std::int64_t tokens);
  ProfilePoint run_connector(std::int64_t tokens);
  ProfilePoint run_embedding(std::int64_t tokens);
  ProfilePoint run_head(std::int64_t tokens);
  PackedSequences short_sequences(std::int64_t tokens) const;
  static EncoderInput patches_input(std::int64_t tokens);
  EncoderInput connector_input(std::int64_t tokens) const;
  LlmInput llm_input(std::int64_t tokens) const;
  /// Per token.
  struct Memory {
    double kept = 0;
    double forward = 0;
    double backward = 0;
  };
  /// `forward` leaves in the tape what the backward needs.
  template <typename Tape, typename Forward, typename Backward>
  Memory memory_of(std::int64_t tokens, const Forward& forward, const Backward& backward);
  Memory memory_of_layer(const TransformerLayer& layer, const TransformerSpec& spec, std::int64_t tokens);
  Memory memory_of_patches(std::int64_t tokens);
  Memory memory_of_connector(std::int64_t tokens);
  Memory memory_of_embedding(std::int64_t tokens);
  Memory memory_of_head(std::int64_t tokens);

  const ModelSpec& model_;
  const RankContext& rank_;
  std::vector<float> values_;
  ParameterStore store_;
  PatchEmbedding patches_;
  Layers encoder_;
  Connector connector_;
  Embedding embedding_;
  Layers llm_;
  Head head_;
  SumTensor loss_;
  SumTensor other_;
  bool flushes_;       // a cache that steps do not profit from
  SumTensor flushed_;  // larger than that, in the one rank of the group that writes it
  SumTensor meeting_;
  std::unique_ptr<DeviceEvent> begin_;
  std::unique_ptr<DeviceEvent> end_;
};

}  // namespace dflop
