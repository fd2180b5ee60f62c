#include "backend/profile/unit_bench.hpp"

#include <string>
#include <utility>

#include "backend/model/synthetic.hpp"
#include "backend/model/tp_rows.hpp"
#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kShortLength = 16;  // of the sequences on which linear parts are measured
constexpr double kRopeBase = 10'000;
// What a core's own caches hold, several times, and much of its share of the last level: between two passes
// of a layer a step goes through tens of MB. On a machine with 1 MiB and a share of 16 MiB one rank's steps
// were predicted 4.7 % too short with 4 MiB, 1.8 % with 8 MiB and 5.9 % too long with 16 MiB (means of four
// runs of `dflop fidelity --steps 24 --budget-s 8` with the grid's plan "one rank").
constexpr std::int64_t kColdValues = std::int64_t{1} << 21;
constexpr std::int64_t kFlushes = 4;   // caches that are written to flush one
constexpr std::int64_t kSumBytes = 4;  // at least

/// One layer of each module and all ends.
StagePlace all_units(int tp) {
  StagePlace place;
  place.stage.tp = tp;
  place.stage.encoder_layers = 1;
  place.stage.llm_layers = 1;
  place.stage.connector = place.stage.embedding = place.stage.head = true;
  place.patches = true;
  return place;
}

PackedSequences sequences(const RankContext& rank, std::int64_t tokens, std::int64_t length) {
  std::vector<std::int32_t> offsets{0};
  std::vector<std::int32_t> positions;
  for (std::int64_t t = 0; t < tokens; ++t) {
    positions.push_back(static_cast<std::int32_t>(t % length));
    if ((t + 1) % length == 0) offsets.push_back(static_cast<std::int32_t>(t + 1));
  }
  return {IndexTensor(rank, offsets), IndexTensor(rank, positions), tokens};
}

std::array<TransformerLayer, 3> layers(const TransformerSpec& spec, const std::string& name,
                                       ParameterStore& store, const RankContext& rank) {
  return {TransformerLayer(spec, Recomputation::none, name, store, rank),
          TransformerLayer(spec, Recomputation::selective, name, store, rank),
          TransformerLayer(spec, Recomputation::full, name, store, rank)};
}

/// Numbers in [-0.5, 0.5), as many as are enough that no product sees the same again and again.
std::vector<float> random_values(std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(4099);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

}  // namespace

UnitBench::UnitBench(const ModelSpec& model, std::uint64_t seed, const RankContext& rank, BenchRole role)
    : model_(model),
      rank_(rank),
      values_(random_values(seed)),
      store_(rank, stage_parameter_list(model, all_units(rank.tp_size()), rank.tp_rank, kPatchValues), 1, 0,
             seed),
      patches_(store_, rank),
      encoder_(layers(model.encoder, "encoder.layers.0", store_, rank)),
      connector_(model, store_, rank),
      embedding_(store_, rank),
      llm_(layers(model.llm, "llm.layers.0", store_, rank)),
      head_(store_, rank),
      loss_(rank, 1, 1),
      other_(rank, 1, kColdValues),
      flushes_(role == BenchRole::measures && rank.device.cache() > Bytes{0}),
      flushed_(rank, 1, flushes_ && rank.tp_rank == 0 ? kFlushes * rank.device.cache().count / kSumBytes : 0),
      meeting_(rank, 1, 1),
      begin_(rank.device.make_event()),
      end_(rank.device.make_event()) {
  store_.zero_gradients(rank);
  rank.kernels.zero(Sums(loss_));
  rank.kernels.zero(Sums(meeting_));
}

Tensor UnitBench::random_tensor(std::int64_t rows, std::int64_t columns) {
  Tensor tensor(rank_, rows, columns);
  std::vector<float> all(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = values_[i % values_.size()];
  upload(rank_, tensor.view().data, element_of(rank_.kernels.dtype()), std::span<const float>(all));
  return tensor;
}

Tensor UnitBench::random_held(std::int64_t rows, std::int64_t columns) {
  return random_tensor(held_rows(rank_, rows), columns);
}

void UnitBench::forget() {
  rank_.kernels.zero(Sums(other_));
}

/// By one rank of a tp group, as the cache is the device's; the others' streams wait until it is done, or it
/// would run in their time.
void UnitBench::flush() {
  if (!flushes_) return;
  rank_.kernels.zero(Sums(flushed_));
  if (rank_.tp_size() == 1) return;
  rank_.communicator.all_reduce(meeting_.view().data, 1, sum_element_of(rank_.kernels.dtype()), rank_.tp,
                                rank_.compute, "the begin of a pass");
}

template <typename Work>
double UnitBench::timed(const Work& work) {
  rank_.compute.synchronize();
  // Before the clock starts, and while the host enters the work, so that the device finds it when it gets
  // there.
  flush();
  rank_.compute.record(*begin_);
  work();
  rank_.compute.record(*end_);
  rank_.compute.synchronize();
  return Seconds(end_->time() - begin_->time()).count();
}

ProfilePoint UnitBench::run(ProfileUnit unit, std::int64_t tokens, std::int64_t length) {
  switch (unit) {
    case ProfileUnit::patches:
      return run_patches(tokens);
    case ProfileUnit::encoder_linear:
      return run_linear(encoder_, model_.encoder, tokens);
    case ProfileUnit::encoder_attention:
      return run_attention(model_.encoder, tokens, length);
    case ProfileUnit::connector:
      return run_connector(tokens);
    case ProfileUnit::embedding:
      return run_embedding(tokens);
    case ProfileUnit::llm_linear:
      return run_linear(llm_, model_.llm, tokens);
    case ProfileUnit::llm_attention:
      return run_attention(model_.llm, tokens, length);
    case ProfileUnit::head:
      return run_head(tokens);
  }
  throw Error(ErrorKind::internal, "a unit that is none");
}

EncoderInput UnitBench::patches_input(std::int64_t tokens) {
  EncoderInput input;
  input.positions.resize(static_cast<std::size_t>(tokens));
  input.pixels.assign(static_cast<std::size_t>(tokens * kPatchValues), 0.5F);
  return input;
}

ProfilePoint UnitBench::run_patches(std::int64_t tokens) {
  ProfilePoint point{tokens};
  const EncoderInput input = patches_input(tokens);
  PatchTape tape;
  Tensor out;
  forget();
  point.forward_s = timed([&] { out = patches_.forward(input, tape); });
  forget();
  patches_.backward_input(random_tensor(out.rows(), out.columns()), tape);
  point.backward_weight_s = timed([&] { patches_.backward_weight(tape); });
  return point;
}

PackedSequences UnitBench::short_sequences(std::int64_t tokens) const {
  return sequences(rank_, tokens, kShortLength);
}

ProfilePoint UnitBench::run_layer(const TransformerLayer& layer, const TransformerSpec& spec,
                                  std::int64_t tokens, std::int64_t length) {
  ProfilePoint point{tokens, length};
  const PackedSequences packed = sequences(rank_, tokens, length);
  LayerTape tape;
  Tensor out;
  Tensor d_x;
  forget();
  Tensor x = random_held(tokens, spec.hidden);
  point.forward_s = timed([&] { out = layer.forward(std::move(x), packed, tape); });
  forget();
  Tensor d_out = random_held(tokens, spec.hidden);
  point.backward_input_s = timed([&] { d_x = layer.backward_input(std::move(d_out), packed, tape); });
  point.backward_weight_s = timed([&] { layer.backward_weight(tape); });
  return point;
}

ProfilePoint UnitBench::run_attention(const TransformerSpec& spec, std::int64_t tokens, std::int64_t length) {
  ProfilePoint point{tokens, length};
  const int tp = rank_.tp_size();
  const AttentionShape shape{spec.heads / tp, spec.kv_heads / tp, spec.head_dim, spec.causal};
  const PackedSequences packed = sequences(rank_, tokens, length);
  Kernels& kernels = rank_.kernels;
  forget();
  Tensor qkv = random_tensor(tokens, shape.qkv_columns());
  Tensor heads;
  SumTensor statistics;
  Tensor d_qkv;
  point.forward_s = timed([&] {
    kernels.rope(qkv, shape, packed.positions, kRopeBase, false);
    heads = Tensor(rank_, tokens, shape.out_columns());
    statistics = SumTensor(rank_, tokens, shape.heads);
    kernels.attention(heads, statistics, qkv, shape, packed.offsets);
  });
  forget();
  const Tensor d_heads = random_tensor(tokens, shape.out_columns());
  point.backward_input_s = timed([&] {
    d_qkv = Tensor(rank_, tokens, shape.qkv_columns());
    kernels.attention_backward(d_qkv, d_heads, heads, statistics, qkv, shape, packed.offsets);
    kernels.rope(d_qkv, shape, packed.positions, kRopeBase, true);
  });
  return point;
}

ProfilePoint UnitBench::run_linear(const Layers& layers, const TransformerSpec& spec, std::int64_t tokens) {
  const auto layer = [&](Recomputation mode) {
    return run_layer(layers[static_cast<std::size_t>(mode)], spec, tokens, kShortLength);
  };
  const ProfilePoint whole = layer(Recomputation::none);
  const ProfilePoint full = layer(Recomputation::full);
  const ProfilePoint attention = run_attention(spec, tokens, kShortLength);
  ProfilePoint point{tokens, 0, whole.forward_s - attention.forward_s,
                     whole.backward_input_s - attention.backward_input_s, whole.backward_weight_s};
  point.recompute_s = full.backward_input_s - whole.backward_input_s - attention.forward_s;
  return point;
}

/// Each merged row is a token of the LLM.
EncoderInput UnitBench::connector_input(std::int64_t tokens) const {
  EncoderInput input;
  input.positions.resize(static_cast<std::size_t>(tokens));
  for (std::int32_t i = 0; i < tokens / model_.connector.merge; ++i) {
    input.pool_begin.push_back(i);
    input.pool_end.push_back(i + 1);
  }
  return input;
}

ProfilePoint UnitBench::run_connector(std::int64_t tokens) {
  ProfilePoint point{tokens};
  const EncoderInput input = connector_input(tokens);
  ConnectorTape tape;
  Tensor out;
  Tensor d_x;
  forget();
  Tensor x = random_held(tokens, model_.encoder.hidden);
  point.forward_s = timed([&] { out = connector_.forward(std::move(x), input, tape); });
  forget();
  const Tensor d_out = random_tensor(out.rows(), out.columns());
  point.backward_input_s = timed([&] { d_x = connector_.backward_input(d_out, tape); });
  point.backward_weight_s = timed([&] { connector_.backward_weight(tape); });
  return point;
}

/// Tokens of the encoder, then as many of text, all of which are trained.
LlmInput UnitBench::llm_input(std::int64_t tokens) const {
  LlmInput input;
  input.encoder_rows = tokens / 2;
  for (std::int32_t t = 0; t < tokens; ++t) {
    const auto id = static_cast<std::int32_t>((std::int64_t{t} * 7919) % model_.llm.vocabulary);
    input.positions.push_back(t);
    input.targets.push_back(id);
    if (t < input.encoder_rows) {
      input.encoded.push_back(t);
      input.encoded_rows.push_back(t);
    } else {
      input.text_ids.push_back(id);
      input.text_rows.push_back(t);
    }
  }
  input.offsets.push_back(static_cast<std::int32_t>(tokens));
  return input;
}

ProfilePoint UnitBench::run_embedding(std::int64_t tokens) {
  ProfilePoint point{tokens};
  const LlmInput input = llm_input(tokens);
  EmbeddingTape tape;
  Tensor out;
  Tensor d_encoded;
  forget();
  const Tensor encoded = random_tensor(input.encoder_rows, model_.llm.hidden);
  point.forward_s = timed([&] { out = embedding_.forward(encoded, input, tape); });
  forget();
  const Tensor d_out = random_held(tokens, model_.llm.hidden);
  point.backward_input_s = timed([&] { d_encoded = embedding_.backward(d_out, tape); });
  return point;
}

ProfilePoint UnitBench::run_head(std::int64_t tokens) {
  ProfilePoint point{tokens};
  const LlmInput input = llm_input(tokens);
  HeadTape tape;
  Tensor d_x;
  forget();
  Tensor x = random_held(tokens, model_.llm.hidden);
  const double weight = 1.0 / static_cast<double>(tokens);
  point.forward_s = timed([&] { head_.forward(std::move(x), input, weight, loss_, tape); });
  forget();
  point.backward_input_s = timed([&] { d_x = head_.backward_input(tape); });
  point.backward_weight_s = timed([&] { head_.backward_weight(tape); });
  return point;
}

}  // namespace dflop
