#include "backend/profile/unit_bench.hpp"

#include <utility>

#include "backend/model/side_by_side.hpp"
#include "backend/profile/bench_values.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kShortLength = 16;  // of the sequences used for linear parts
constexpr std::int64_t kFlushes = 4;       // cache sizes to write to flush the cache
constexpr std::int64_t kTableTaps = 4;     // of bilinear interpolation

/// Returns a stage with one layer of each module and all other parts of a model.
StagePlace all_units(const ModelSpec& model, int tp) {
  const bool has_encoder = model.encoder.layers > 0;
  StagePlace place;
  place.stage.tp = tp;
  place.stage.encoder_layers = has_encoder ? 1 : 0;
  place.stage.llm_layers = 1;
  place.stage.connector = has_encoder;
  place.stage.embedding = place.stage.head = true;
  place.patches = has_encoder;
  return place;
}

/// Returns sequences of `length` rows; `length` divides `rows`. A row's position on every axis is its index,
/// and windows are whole sequences.
PackedRows sequences(const TransformerSpec& spec, std::int64_t rows, std::int64_t length) {
  const LayerForm form = spec.layer_form();
  const auto axes = static_cast<std::size_t>(form.rotary ? form.rotary->axes() : 0);
  PackedRows packed;
  for (std::int64_t t = 0; t < rows; t += length) {
    std::vector<std::int32_t> positions;
    for (std::int32_t row = 0; row < length; ++row) positions.insert(positions.end(), axes, row);
    std::vector<std::int32_t> windows;
    if (!form.windowed.empty()) windows = {0, static_cast<std::int32_t>(length)};
    packed.add_sequence(length, positions, windows);
  }
  return packed;
}

/// Returns one sequence whose rows all come from patches or frames, if the front has no other rows. Values
/// already have the run's precision, as they do in a run before its step.
EncoderInput front_input(const ModelSpec& model, std::int64_t rows, DType dtype) {
  const EncoderFront front = model.front();
  EncoderInput input;
  input.offsets.push_back(static_cast<std::int32_t>(rows));
  const std::int64_t values = front.kind == FrontKind::sound ? 2 * rows : rows - (front.class_row ? 1 : 0);
  input.values = {
      HostValues(std::vector<float>(static_cast<std::size_t>(values * front.values), 0.5F)).as(dtype)};
  input.value_offsets.push_back(static_cast<std::int32_t>(values));
  for (std::int64_t row = 0; row < rows; ++row) {
    if (front.class_row) input.value_rows.push_back(static_cast<std::int32_t>(row - 1));
    if (front.table > 0) input.table_rows.push_back(static_cast<std::int32_t>(row % front.table));
    if (!front.spread_table) continue;
    input.table_mix.add_row();
    for (std::int64_t tap = 0; tap < kTableTaps; ++tap)
      input.table_mix.add_tap((row + tap) % front.table, 1.0 / kTableTaps);
  }
  return input;
}

/// Returns rows of which every merged row goes to the LLM.
EncoderInput connector_input(const ModelSpec& model, std::int64_t rows) {
  EncoderInput input;
  input.offsets.push_back(static_cast<std::int32_t>(rows));
  const std::int64_t means = model.connector_form().averages ? model.connector.merge : 1;
  for (std::int64_t row = 0; model.connector_form().selects && row < rows; row += means) {
    input.select.add_mean(row, row + means);
  }
  for (std::int64_t row = 0; row < rows / model.connector.merge; ++row) input.sent.add_mean(row, row + 1);
  return input;
}

/// Returns encoder tokens, if there is an encoder, and then as many text tokens, all of them trained.
LlmInput llm_input(const ModelSpec& model, std::int64_t tokens) {
  const std::int64_t vocabulary = model.llm.vocabulary;
  LlmInput input;
  input.encoder_rows = model.encoder.layers > 0 ? tokens / 2 : 0;
  input.add_sequence(tokens);
  for (std::int32_t t = 0; t < tokens; ++t) {
    const auto id = static_cast<std::int32_t>((std::int64_t{t} * 7919) % vocabulary);
    input.targets.push_back(id);
    if (t < input.encoder_rows) {
      input.encoded.push_back(t);
      input.encoded_rows.push_back(t);
    } else {
      input.text_ids.push_back(id);
      input.text_rows.push_back(t);
    }
  }
  return input;
}

}  // namespace

UnitBench::UnitBench(const ModelSpec& model, std::uint64_t seed, const RankContext& rank, BenchRole role)
    : model_(model),
      rank_(rank),
      values_(random_values(seed)),
      store_(rank,
             stage_parameter_list(model, all_units(model, rank.tp_size()), rank.tp_rank,
                                  rank.device.row_alignment()),
             1, 0, seed),
      encoder_packer_(model.encoder),
      llm_packer_(model.llm),
      embedding_(model, store_, rank),
      head_(model, store_, rank),
      loss_(rank, 1, 1),
      other_(rank, 1, kColdValues),
      flushes_(role == BenchRole::measures && rank.device.cache() > Bytes{0}),
      flushed_(rank, 1,
               flushes_ && rank.tp_rank == 0 ? kFlushes * rank.device.cache().count / kFp32Bytes : 0),
      meeting_(rank, 1, 1),
      begin_(rank.device.make_event()),
      end_(rank.device.make_event()) {
  if (model.encoder.layers > 0) {
    input_ = make_input_embedding(model, "encoder", store_, rank);
    connectors_.emplace(model, first_encoder(), store_, rank);
  }
  store_.begin_gradients();
  rank.kernels.zero(Sums(loss_));
  rank.kernels.zero(Sums(meeting_));
}

/// Makes random values for all tensors of `rows` rows, unless there are enough already, because the host
/// needs longer to make them than a device needs for a pass.
void UnitBench::reserve_values(std::int64_t rows) {
  std::int64_t widest = std::max<std::int64_t>(model_.sent_width(), model_.encoder.hidden);
  for (const TransformerSpec* spec : {&model_.llm, &model_.encoder}) {
    if (spec->layers > 0) widest = std::max(widest, attention_shape(*spec, rank_).qkv_columns());
  }
  const std::int64_t count = rows * widest;
  if (count <= random_.view().size()) return;
  std::vector<float> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = values_[i % values_.size()];
  random_ = {};
  random_ = Tensor(rank_, 1, count);
  upload(rank_, random_.view().data, rank_.kernels.dtype(), std::span<const float>(all));
}

/// @pre reserve_values() was called for at least as many rows
Tensor UnitBench::random_tensor(std::int64_t rows, std::int64_t columns) {
  Tensor tensor(rank_, rows, columns);
  const std::size_t bytes = static_cast<std::size_t>(rows * columns) * bytes_of(rank_.kernels.dtype());
  if (bytes > 0) rank_.compute.copy(tensor.view().data, std::as_const(random_).view().data, bytes);
  return tensor;
}

/// Lets one rank of a tp group flush the device's cache. The other ranks' streams wait until it is done;
/// otherwise the flush would count in their times.
void UnitBench::flush() {
  if (!flushes_) return;
  rank_.kernels.zero(Sums(flushed_));
  if (rank_.tp_size() == 1) return;
  rank_.communicator.all_reduce(meeting_.view().data, 1, sum_type_of(rank_.kernels.dtype()), rank_.tp,
                                rank_.compute, "the begin of a pass");
}

template <typename Work>
double UnitBench::timed(const Work& work) {
  rank_.compute.synchronize();
  // This happens before the clock starts, while the host enqueues the work, so that the device finds the work
  // when the flush is done.
  flush();
  rank_.compute.record(*begin_);
  work();
  rank_.compute.record(*end_);
  rank_.compute.synchronize();
  return Seconds(end_->time() - begin_->time()).count();
}

template <typename Tape>
ProfilePoint UnitBench::time(const Passes<Tape>& passes, std::int64_t tokens, std::int64_t length) {
  ProfilePoint point{tokens, length};
  Tape tape;
  Tensor out;
  Tensor d_x;
  forget();
  Tensor x = passes.make_input();
  point.forward_s = timed([&] {
    const Stopwatch watch;
    out = passes.forward(x, tape);
    forward_host_s_ = watch.elapsed().count();
  });
  forget();
  Tensor d_out = passes.make_gradient(tape);
  if (passes.backward_input) {
    point.backward_input_s = timed([&] { d_x = passes.backward_input(d_out, tape); });
  }
  if (passes.backward_weight) point.backward_weight_s = timed([&] { passes.backward_weight(tape); });
  return point;
}

template <typename Tape>
UnitBench::Memory UnitBench::memory_of(const Passes<Tape>& passes, std::int64_t tokens) {
  const auto per_token = [&](Bytes bytes) {
    return static_cast<double>(bytes.count) / static_cast<double>(tokens);
  };
  Device& device = rank_.device;
  Tape tape;
  const Bytes before = device.in_use();
  device.reset_most_in_use();
  {
    Tensor x = passes.make_input();
    passes.forward(x, tape);
  }
  const Bytes kept = device.in_use();
  const Bytes most = device.most_in_use();
  device.reset_most_in_use();
  Tensor d_out = passes.make_gradient(tape);
  Tensor d_x;
  if (passes.backward_input) d_x = passes.backward_input(d_out, tape);
  if (passes.backward_weight) passes.backward_weight(tape);
  return {per_token(kept - before), per_token(most - kept), per_token(device.most_in_use() - kept)};
}

UnitBench::Passes<InputTape> UnitBench::patches(std::int64_t tokens) {
  return {[] { return Tensor(); },
          [this, input = front_input(model_, tokens, rank_.kernels.dtype())](Tensor&, InputTape& tape) {
            return input_->forward(input, tape);
          },
          [this, tokens](InputTape& tape) {
            tape.d_rows = random_held(tokens, model_.encoder.hidden);
            return Tensor();
          },
          nullptr, [this](InputTape& tape) { input_->backward_weight(tape); }};
}

PackedSequences UnitBench::packed(const TransformerSpec& spec, std::int64_t tokens, std::int64_t length) {
  SequencePacker& packer = &spec == &model_.encoder ? encoder_packer_ : llm_packer_;
  return packer(rank_, sequences(spec, tokens, length));
}

UnitBench::Passes<LayerTape> UnitBench::layer(const std::string& module, const TransformerSpec& spec,
                                              Recomputation mode, std::int64_t tokens) {
  const auto one = std::make_shared<const TransformerLayer>(spec, mode, module, 0, store_, rank_);
  const auto rows = std::make_shared<PackedSequences>(packed(spec, tokens, kShortLength));
  return {[this, tokens, &spec] { return random_held(tokens, spec.hidden); },
          [one, rows](Tensor& x, LayerTape& tape) { return one->forward(std::move(x), *rows, tape); },
          [this, tokens, &spec](LayerTape&) { return random_held(tokens, spec.hidden); },
          [one, rows](Tensor& d_out, LayerTape& tape) {
            return one->backward_input(std::move(d_out), *rows, tape);
          },
          [one](LayerTape& tape) { one->backward_weight(tape); }};
}

UnitBench::Passes<UnitBench::AttentionTape> UnitBench::attention(const TransformerSpec& spec,
                                                                 std::int64_t tokens, std::int64_t length) {
  const AttentionShape shape = attention_shape(spec, rank_);
  const auto rows = std::make_shared<PackedSequences>(packed(spec, tokens, length));
  const auto turn = [this, shape, rows](Tensor& qkv, bool inverse) {
    if (rows->turns.table == nullptr) return;
    rank_.kernels.rope(qkv, shape, rows->turns.rows, *rows->turns.table, inverse);
  };
  return {[this, tokens, shape] { return random_tensor(tokens, shape.qkv_columns()); },
          [this, tokens, shape, rows, turn](Tensor& x, AttentionTape& tape) {
            tape.qkv = std::move(x);
            turn(tape.qkv, false);
            tape.heads = Tensor(rank_, tokens, shape.out_columns());
            tape.statistics = SumTensor(rank_, tokens, shape.heads);
            rank_.kernels.attention(tape.heads, tape.statistics, tape.qkv, shape, rows->offsets);
            return Tensor();
          },
          [this, tokens, shape](AttentionTape&) { return random_tensor(tokens, shape.out_columns()); },
          [this, tokens, shape, rows, turn](Tensor& d_heads, AttentionTape& tape) {
            Tensor d_qkv(rank_, tokens, shape.qkv_columns());
            rank_.kernels.attention_backward(d_qkv, d_heads, tape.heads, tape.statistics, tape.qkv, shape,
                                             rows->offsets);
            turn(d_qkv, true);
            return d_qkv;
          },
          nullptr};
}

UnitBench::Passes<Connectors::Tape> UnitBench::connector(std::int64_t tokens) {
  using Tape = Connectors::Tape;
  const int merge = model_.connector.merge;
  const int deep = model_.deep_features();
  return {[this, tokens] { return random_held(tokens, model_.encoder.hidden); },
          [this, deep, input = connector_input(model_, tokens)](Tensor& x, Tape& tape) {
            connectors_->begin(tape);
            for (int f = 0; f < deep; ++f) connectors_->take(f, copy_of(rank_, x), input, tape);
            return connectors_->forward(std::move(x), input, tape);
          },
          [this, tokens, merge](Tape&) { return random_tensor(tokens / merge, model_.sent_width()); },
          [this, deep](Tensor& d_out, Tape& tape) {
            Tensor d = connectors_->backward_input(d_out, tape);
            for (int f = 0; f < deep; ++f) rank_.kernels.add(d, connectors_->backward_deep(f, tape));
            return d;
          },
          [this](Tape& tape) { connectors_->backward_weight(tape); }};
}

UnitBench::Passes<TokenTape> UnitBench::embedding(std::int64_t tokens) {
  const LlmInput input = llm_input(model_, tokens);
  return {
      [this, rows = input.encoder_rows] { return random_tensor(rows, model_.sent_width()); },
      [this, input](Tensor& encoded, TokenTape& tape) { return embedding_.forward(encoded, input, tape); },
      [this, tokens](TokenTape&) { return random_held(tokens, model_.llm.hidden); },
      [this](Tensor& d_out, TokenTape& tape) { return embedding_.backward(d_out, tape); }, nullptr};
}

UnitBench::Passes<LmHeadTape> UnitBench::head(std::int64_t tokens) {
  return {[this, tokens] { return random_held(tokens, model_.llm.hidden); },
          [this, tokens, input = llm_input(model_, tokens)](Tensor& x, LmHeadTape& tape) {
            head_.forward(std::move(x), input, 1.0 / static_cast<double>(tokens), loss_, tape);
            return Tensor();
          },
          [](LmHeadTape&) { return Tensor(); },
          [this](Tensor&, LmHeadTape& tape) { return head_.backward_input(tape); },
          [this](LmHeadTape& tape) { head_.backward_weight(tape); }};
}

ProfilePoint UnitBench::run(ProfileUnit unit, std::int64_t tokens, std::int64_t length) {
  reserve_values(tokens);
  switch (unit) {
    case ProfileUnit::patches: {
      ProfilePoint point = time(patches(tokens), tokens);
      if (!rank_.device.is_synchronous()) point.host_s = forward_host_s_;
      return point;
    }
    case ProfileUnit::encoder_linear:
      return run_linear("encoder", model_.encoder, tokens);
    case ProfileUnit::encoder_attention:
      return time(attention(model_.encoder, tokens, length), tokens, length);
    case ProfileUnit::connector:
      return time(connector(tokens), tokens);
    case ProfileUnit::embedding:
      return time(embedding(tokens), tokens);
    case ProfileUnit::llm_linear:
      return run_linear("llm", model_.llm, tokens);
    case ProfileUnit::llm_attention:
      return time(attention(model_.llm, tokens, length), tokens, length);
    case ProfileUnit::head:
      return time(head(tokens), tokens);
  }
  throw Error(ErrorKind::internal, "unknown unit");
}

ProfilePoint UnitBench::run_linear(const std::string& module, const TransformerSpec& spec,
                                   std::int64_t tokens) {
  const auto run_layer = [&](Recomputation mode) {
    return time(layer(module, spec, mode, tokens), tokens, kShortLength);
  };
  const ProfilePoint whole = run_layer(Recomputation::none);
  const ProfilePoint full = run_layer(Recomputation::full);
  const ProfilePoint part = time(attention(spec, tokens, kShortLength), tokens, kShortLength);
  ProfilePoint point{tokens, 0, whole.forward_s - part.forward_s,
                     whole.backward_input_s - part.backward_input_s, whole.backward_weight_s};
  point.recompute_s = full.backward_input_s - whole.backward_input_s - part.forward_s;
  return point;
}

void UnitBench::measure_memory(std::int64_t tokens, TpProfile& profile) {
  reserve_values(round_up(tokens, std::max(1, model_.connector.merge)));
  const auto set = [&](auto part, const Memory& memory) {
    std::invoke(part, profile.activation) = memory.kept;
    std::invoke(part, profile.forward_buffers) = memory.forward;
    std::invoke(part, profile.backward_buffers) = memory.backward;
  };
  for (const Recomputation mode : {Recomputation::none, Recomputation::selective, Recomputation::full}) {
    const auto place = static_cast<std::size_t>(mode);
    if (model_.encoder.layers > 0) {
      set([place](BytesPerToken& b) -> double& { return b.encoder_layer[place]; },
          memory_of(layer("encoder", model_.encoder, mode, tokens), tokens));
    }
    if (model_.llm.layers == 0) continue;
    set([place](BytesPerToken& b) -> double& { return b.llm_layer[place]; },
        memory_of(layer("llm", model_.llm, mode, tokens), tokens));
  }
  if (model_.encoder.layers > 0) {
    const std::int64_t merged = round_up(tokens, model_.connector.merge);
    set(&BytesPerToken::patches, memory_of(patches(tokens), tokens));
    set(&BytesPerToken::connector, memory_of(connector(merged), merged));
  }
  if (model_.llm.layers == 0) return;
  set(&BytesPerToken::embedding, memory_of(embedding(tokens), tokens));
  set(&BytesPerToken::head, memory_of(head(tokens), tokens));
  // A forward's buffers count per token that has logits at once, because not all `tokens` may have them
  // (`logits_at_once`).
  const TransformerSpec& llm = model_.llm;
  const auto without = static_cast<double>(tokens - llm.logit_rows(tokens, rank_.tp_size()));
  const auto logits = static_cast<double>(llm.vocabulary_per_rank(rank_.tp_size())) *
                      static_cast<double>(bytes_of(rank_.kernels.dtype()));
  profile.forward_buffers.head += without / static_cast<double>(tokens) * logits;
}

}  // namespace dflop
