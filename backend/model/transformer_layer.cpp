#include "backend/model/transformer_layer.hpp"

#include <utility>

namespace dflop {
namespace {

bool is_windowed(const LayerForm& form, int place) {
  return static_cast<std::size_t>(place) < form.windowed.size() &&
         form.windowed[static_cast<std::size_t>(place)];
}

/// Returns, for each of `rows` rows of `all` blocks, the numbers of `count` blocks from `first` on.
std::vector<std::int32_t> blocks_of(std::int64_t rows, std::int64_t all, std::int64_t first,
                                    std::int64_t count) {
  std::vector<std::int32_t> index;
  index.reserve(static_cast<std::size_t>(rows * count));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < count; ++i)
      index.push_back(static_cast<std::int32_t>(row * all + first + i));
  }
  return index;
}

HeadBlocks head_blocks(const RankContext& rank, const AttentionShape& shape, QkNormKind kind,
                       std::int64_t rows) {
  const bool each = kind == QkNormKind::each_head;
  const std::int64_t queries = each ? shape.heads : 1;
  const std::int64_t keys = each ? shape.kv_heads : 1;
  const auto index = [&](std::int64_t first, std::int64_t count) {
    return IndexTensor(rank, blocks_of(rows, queries + 2 * keys, first, count));
  };
  return {index(0, queries), index(queries, keys), index(queries + keys, keys)};
}

}  // namespace

SequencePacker::SequencePacker(const TransformerSpec& spec)
    : spec_(spec), qk_norm_(spec.layer_form().qk_norm) {
  if (const auto rotary = spec.layer_form().rotary; rotary && spec.layers > 0) {
    turns_.emplace(*rotary, spec.head_dim);
  }
}

PackedSequences SequencePacker::operator()(const RankContext& rank, const PackedRows& packed) {
  PackedSequences sequences{
      IndexTensor(rank, packed.offsets), IndexTensor(rank, packed.windows), {}, {}, packed.rows()};
  if (turns_) sequences.turns = turns_->of(rank, packed.positions);
  if (qk_norm_ != QkNormKind::none)
    sequences.heads = head_blocks(rank, attention_shape(spec_, rank), qk_norm_, packed.rows());
  return sequences;
}

QkNorm::QkNorm(const std::string& name, const LayerForm& form, const AttentionShape& shape,
               ParameterStore& store, const RankContext& rank)
    : rank_(rank),
      width_(form.qk_norm == QkNormKind::each_head ? shape.head_dim : shape.out_columns()),
      columns_(shape.qkv_columns()),
      queries_(name + ".q_norm", NormKind::rms, form.qk_epsilon, store, rank),
      keys_(name + ".k_norm", NormKind::rms, form.qk_epsilon, store, rank) {}

Tensor QkNorm::part(const Tensor& qkv, const IndexTensor& blocks) const {
  Tensor part(rank_, blocks.size(), width_);
  rank_.kernels.gather_rows(part, {qkv.view().data, qkv.view().size() / width_, width_}, blocks);
  return part;
}

Tensor QkNorm::packed(const Tensor& queries, const Tensor& keys, const Tensor& values,
                      const HeadBlocks& blocks) const {
  const std::int64_t size = (queries.rows() + keys.rows() + values.rows()) * width_;
  Tensor qkv(rank_, size / columns_, columns_);
  const Matrix all{qkv.view().data, size / width_, width_};
  rank_.kernels.zero(all);
  rank_.kernels.scatter_add_rows(all, queries, blocks.queries);
  rank_.kernels.scatter_add_rows(all, keys, blocks.keys);
  rank_.kernels.scatter_add_rows(all, values, blocks.values);
  return qkv;
}

Tensor QkNorm::forward(Tensor qkv, const HeadBlocks& blocks, QkNormTape& tape) const {
  tape.queries.x = part(qkv, blocks.queries);
  tape.keys.x = part(qkv, blocks.keys);
  queries_.forward(tape.queries);
  keys_.forward(tape.keys);
  Tensor normed = packed(tape.queries.out, tape.keys.out, part(qkv, blocks.values), blocks);
  tape.queries.out = {};
  tape.keys.out = {};
  return normed;
}

Tensor QkNorm::backward(Tensor d_qkv, const HeadBlocks& blocks, QkNormTape& tape) const {
  const Tensor d_queries = queries_.backward(part(d_qkv, blocks.queries), tape.queries);
  const Tensor d_keys = keys_.backward(part(d_qkv, blocks.keys), tape.keys);
  return packed(d_queries, d_keys, part(d_qkv, blocks.values), blocks);
}

TransformerLayer::TransformerLayer(const TransformerSpec& spec, Recomputation recomputation,
                                   const std::string& module, int place, ParameterStore& store,
                                   const RankContext& rank)
    : TransformerLayer(spec, spec.layer_form(), recomputation, module + ".layers." + std::to_string(place),
                       is_windowed(spec.layer_form(), place), store, rank) {}

TransformerLayer::TransformerLayer(const TransformerSpec& spec, const LayerForm& form,
                                   Recomputation recomputation, const std::string& name, bool windowed,
                                   ParameterStore& store, const RankContext& rank)
    : activation_(form.activation),
      rotary_(form.rotary.has_value()),
      windowed_(windowed),
      recomputation_(recomputation),
      store_(store),
      rank_(rank),
      attention_(attention_shape(spec, rank)),
      scale1_(form.layer_scale ? &store.find(name + ".scale1") : nullptr),
      scale2_(form.layer_scale ? &store.find(name + ".scale2") : nullptr),
      norm1_(name + ".norm1", form.norm, form.epsilon, store, rank),
      qkv_(name + ".qkv", form.qkv_bias, Split::rows, store, rank),
      attention_out_(name + ".attention_out", form.output_bias, Split::columns, store, rank),
      norm2_(name + ".norm2", form.norm, form.epsilon, store, rank),
      up_(name + ".up", form.mlp_bias, Split::rows, store, rank),
      down_(name + ".down", form.mlp_bias, Split::columns, store, rank) {
  if (form.qk_norm != QkNormKind::none) qk_norm_.emplace(name, form, attention_, store, rank);
}

void TransformerLayer::attend(const PackedSequences& sequences, LayerTape& tape) const {
  tape.heads = Tensor(rank_, sequences.rows, attention_.out_columns());
  tape.attention_statistics = SumTensor(rank_, sequences.rows, attention_.heads);
  rank_.kernels.attention(tape.heads, tape.attention_statistics, tape.qkv, attention_, offsets(sequences));
}

/// Turns queries and keys by their positions, or gradients back, where the module has rotary positions.
void TransformerLayer::turn(Tensor& qkv, const PackedSequences& sequences, bool inverse) const {
  if (!rotary_) return;
  rank_.kernels.rope(qkv, attention_, sequences.turns.rows, *sequences.turns.table, inverse);
}

void TransformerLayer::activate(LayerTape& tape) const {
  const bool gated = activation_ == Activation::swiglu;
  tape.activated = Tensor(rank_, tape.up.rows(), tape.up.columns() / (gated ? 2 : 1));
  apply(rank_.kernels, activation_, tape.activated, tape.up);
}

Tensor TransformerLayer::activate_backward(const Tensor& d_activated, const LayerTape& tape) const {
  Tensor d_up(rank_, tape.up.rows(), tape.up.columns());
  apply_backward(rank_.kernels, activation_, d_up, d_activated, tape.up);
  return d_up;
}

/// Returns the result of a layer's half, scaled where there is a scale; what was scaled is kept then.
Tensor TransformerLayer::scaled(Tensor result, const Parameter* scale, Tensor& kept) const {
  if (scale == nullptr) return result;
  kept = std::move(result);
  Tensor y(rank_, kept.rows(), kept.columns());
  rank_.kernels.scale_columns(y, kept, store_.weight(*scale));
  return y;
}

/// Returns the gradient of the values before scaling, and adds to the gradient of the scale. @pre scale is
/// set
Tensor TransformerLayer::scaled_backward(const Tensor& d_sum, const Parameter* scale, Tensor& kept) const {
  rank_.kernels.column_products(store_.gradient_to_add_to(rank_, *scale), d_sum, kept);
  kept = {};
  Tensor d_result(rank_, d_sum.rows(), d_sum.columns());
  rank_.kernels.scale_columns(d_result, d_sum, store_.weight(*scale));
  return d_result;
}

/// Computes all of the tape from its input, and the output where that is asked for. What a scale multiplies
/// is read by the backward: the MLP's half is then computed to its end in any case.
Tensor TransformerLayer::fill(const PackedSequences& sequences, LayerTape& tape, bool with_output) const {
  norm1_.forward(tape.norm1);
  tape.qkv = qkv_.forward(all_rows(tape.norm1.out, sequences.rows));
  if (qk_norm_) tape.qkv = qk_norm_->forward(std::move(tape.qkv), sequences.heads, tape.qk_norm);
  turn(tape.qkv, sequences, false);
  attend(sequences, tape);
  tape.norm2.x = scaled(attention_out_.forward(tape.heads), scale1_, tape.attended);
  norm2_.forward(tape.norm2, tape.norm1.x);
  tape.up = up_.forward(all_rows(tape.norm2.out, sequences.rows));
  activate(tape);
  if (!with_output && scale2_ == nullptr) return {};
  Tensor out = scaled(down_.forward(tape.activated), scale2_, tape.mlp);
  if (!with_output) return {};
  rank_.kernels.add(out, tape.norm2.x);
  return out;
}

Tensor TransformerLayer::forward(Tensor x, const PackedSequences& sequences, LayerTape& tape) const {
  tape.norm1.x = std::move(x);
  Tensor out = fill(sequences, tape, true);
  if (recomputation_ == Recomputation::full) {
    Tensor input = std::move(tape.norm1.x);
    tape = {};
    tape.norm1.x = std::move(input);
  } else if (recomputation_ == Recomputation::selective) {
    tape.heads = {};
    tape.attention_statistics = {};
  }
  return out;
}

/// Returns the gradient of the input of the MLP's half from the gradient of its output.
Tensor TransformerLayer::mlp_backward(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const {
  Tensor d_result;  // differs from the gradient of the sum if there is a scale
  if (scale2_ != nullptr) d_result = scaled_backward(d_out, scale2_, tape.mlp);
  tape.d_out = scale2_ != nullptr ? std::move(d_result) : std::move(d_out);
  tape.d_out_all = all_rows(tape.d_out, sequences.rows);
  tape.d_up = activate_backward(down_.backward_input(tape.d_out_all), tape);
  tape.up = {};
  return norm2_.backward(up_.backward_input(tape.d_up), tape.norm2, scale2_ != nullptr ? d_out : tape.d_out);
}

/// Returns the same of attention's half.
Tensor TransformerLayer::attention_backward(Tensor d_out, const PackedSequences& sequences,
                                            LayerTape& tape) const {
  Tensor d_result;
  if (scale1_ != nullptr) d_result = scaled_backward(d_out, scale1_, tape.attended);
  tape.d_x1 = scale1_ != nullptr ? std::move(d_result) : std::move(d_out);
  tape.d_x1_all = all_rows(tape.d_x1, sequences.rows);
  {
    const Tensor d_heads = attention_out_.backward_input(tape.d_x1_all);
    tape.d_qkv = Tensor(rank_, sequences.rows, attention_.qkv_columns());
    rank_.kernels.attention_backward(tape.d_qkv, d_heads, tape.heads, tape.attention_statistics, tape.qkv,
                                     attention_, offsets(sequences));
  }
  tape.qkv = {};
  tape.attention_statistics = {};
  turn(tape.d_qkv, sequences, true);
  if (qk_norm_) tape.d_qkv = qk_norm_->backward(std::move(tape.d_qkv), sequences.heads, tape.qk_norm);
  return norm1_.backward(qkv_.backward_input(tape.d_qkv), tape.norm1, scale1_ != nullptr ? d_out : tape.d_x1);
}

Tensor TransformerLayer::backward_input(Tensor d_out, const PackedSequences& sequences,
                                        LayerTape& tape) const {
  if (recomputation_ == Recomputation::full) fill(sequences, tape, false);
  if (recomputation_ == Recomputation::selective) attend(sequences, tape);
  Tensor d_x1 = mlp_backward(std::move(d_out), sequences, tape);
  return attention_backward(std::move(d_x1), sequences, tape);
}

void TransformerLayer::backward_weight(LayerTape& tape) const {
  const std::int64_t rows = tape.heads.rows();
  if (tape.d_out_all.empty()) tape.d_out_all = all_rows(tape.d_out, rows);
  if (tape.d_x1_all.empty()) tape.d_x1_all = all_rows(tape.d_x1, rows);
  down_.backward_weight(tape.d_out_all, tape.activated);
  up_.backward_weight(tape.d_up, all_rows(tape.norm2.out, rows));
  attention_out_.backward_weight(tape.d_x1_all, tape.heads);
  qkv_.backward_weight(tape.d_qkv, all_rows(tape.norm1.out, rows));
  tape = {};
}

TransformerStack::TransformerStack(const TransformerSpec& spec, Recomputation recomputation,
                                   const std::string& module, int first, int count, ParameterStore& store,
                                   const RankContext& rank) {
  for (int i = first; i < first + count; ++i) {
    layers_.emplace_back(spec, recomputation, module, i, store, rank);
  }
}

Tensor TransformerStack::forward(Tensor x, StackTape& tape, const LayerHook& seen) const {
  tape.layers.resize(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i].forward(std::move(x), tape.sequences, tape.layers[i]);
    if (seen) seen(static_cast<int>(i), x);
  }
  return x;
}

Tensor TransformerStack::backward(Tensor d_out, bool weights, StackTape& tape,
                                  const std::function<void(int layer)>& after,
                                  const LayerHook& before) const {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    if (before) before(static_cast<int>(i), d_out);
    d_out = layers_[i].backward_input(std::move(d_out), tape.sequences, tape.layers[i]);
    weights ? layers_[i].backward_weight(tape.layers[i]) : tape.layers[i].drop_gathered();
    if (after) after(static_cast<int>(i));
  }
  return d_out;
}

}  // namespace dflop
