// What the passes of single parts of a model keep, and need while they run.
#include <utility>

#include "backend/model/tp_rows.hpp"
#include "backend/profile/unit_bench.hpp"

namespace dflop {

template <typename Tape, typename Forward, typename Backward>
UnitBench::Memory UnitBench::memory_of(std::int64_t tokens, const Forward& forward,
                                       const Backward& backward) {
  const auto per_token = [&](Bytes bytes) {
    return static_cast<double>(bytes.count) / static_cast<double>(tokens);
  };
  Device& device = rank_.device;
  Tape tape;
  const Bytes before = device.in_use();
  device.reset_most_in_use();
  forward(tape);
  const Bytes kept = device.in_use();
  const Bytes most = device.most_in_use();
  device.reset_most_in_use();
  backward(tape);
  return {per_token(kept - before), per_token(most - kept), per_token(device.most_in_use() - kept)};
}

UnitBench::Memory UnitBench::memory_of_layer(const TransformerLayer& layer, const TransformerSpec& spec,
                                             std::int64_t tokens) {
  const PackedSequences packed = short_sequences(tokens);
  return memory_of<LayerTape>(
      tokens, [&](LayerTape& tape) { layer.forward(random_held(tokens, spec.hidden), packed, tape); },
      [&](LayerTape& tape) {
        const Tensor d_x = layer.backward_input(random_held(tokens, spec.hidden), packed, tape);
        layer.backward_weight(tape);
      });
}

UnitBench::Memory UnitBench::memory_of_patches(std::int64_t tokens) {
  const EncoderInput input = patches_input(tokens);
  return memory_of<PatchTape>(
      tokens, [&](PatchTape& tape) { patches_.forward(input, tape); },
      [&](PatchTape& tape) {
        patches_.backward_input(random_held(tokens, model_.encoder.hidden), tape);
        patches_.backward_weight(tape);
      });
}

UnitBench::Memory UnitBench::memory_of_connector(std::int64_t tokens) {
  const EncoderInput input = connector_input(tokens);
  return memory_of<ConnectorTape>(
      tokens,
      [&](ConnectorTape& tape) {
        connector_.forward(random_held(tokens, model_.encoder.hidden), input, tape);
      },
      [&](ConnectorTape& tape) {
        const auto rows = static_cast<std::int64_t>(input.pool_begin.size());
        const Tensor d_out = random_tensor(rows, model_.llm.hidden);
        const Tensor d_x = connector_.backward_input(d_out, tape);
        connector_.backward_weight(tape);
      });
}

UnitBench::Memory UnitBench::memory_of_embedding(std::int64_t tokens) {
  const LlmInput input = llm_input(tokens);
  return memory_of<EmbeddingTape>(
      tokens,
      [&](EmbeddingTape& tape) {
        embedding_.forward(random_tensor(input.encoder_rows, model_.llm.hidden), input, tape);
      },
      [&](EmbeddingTape& tape) {
        const Tensor d_out = random_held(tokens, model_.llm.hidden);
        const Tensor d_encoded = embedding_.backward(d_out, tape);
      });
}

UnitBench::Memory UnitBench::memory_of_head(std::int64_t tokens) {
  const LlmInput input = llm_input(tokens);
  return memory_of<HeadTape>(
      tokens,
      [&](HeadTape& tape) { head_.forward(random_held(tokens, model_.llm.hidden), input, 0, loss_, tape); },
      [&](HeadTape& tape) {
        const Tensor d_x = head_.backward_input(tape);
        head_.backward_weight(tape);
      });
}

void UnitBench::measure_memory(std::int64_t tokens, TpProfile& profile) {
  const auto set = [&](auto place, const Memory& memory) {
    place(profile.activation) = memory.kept;
    place(profile.forward_buffers) = memory.forward;
    place(profile.backward_buffers) = memory.backward;
  };
  for (std::size_t mode = 0; mode < 3; ++mode) {
    set([mode](BytesPerToken& b) -> double& { return b.encoder_layer[mode]; },
        memory_of_layer(encoder_[mode], model_.encoder, tokens));
    set([mode](BytesPerToken& b) -> double& { return b.llm_layer[mode]; },
        memory_of_layer(llm_[mode], model_.llm, tokens));
  }
  const std::int64_t merged = round_up(tokens, model_.connector.merge);
  set([](BytesPerToken& b) -> double& { return b.patches; }, memory_of_patches(tokens));
  set([](BytesPerToken& b) -> double& { return b.connector; }, memory_of_connector(merged));
  set([](BytesPerToken& b) -> double& { return b.embedding; }, memory_of_embedding(tokens));
  set([](BytesPerToken& b) -> double& { return b.head; }, memory_of_head(tokens));
}

}  // namespace dflop
