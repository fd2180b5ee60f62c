#include "backend/model/ends.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace dflop {
namespace {

constexpr const char* kEmbeddingParts = "the parts of an embedding";
constexpr const char* kEndRows = "the rows of an end of the LLM";

}  // namespace

PatchEmbedding::PatchEmbedding(ParameterStore& store, const RankContext& rank)
    : rank_(rank), linear_("encoder.patches", false, Split::rows, store, rank) {}

Tensor PatchEmbedding::forward(const EncoderInput& input, PatchTape& tape) const {
  const auto rows = input.rows();
  const std::int64_t held = held_rows(rank_, rows);
  const std::int64_t begin = has_shards(rank_) ? std::min(rows, rank_.tp_rank * held) : 0;
  const std::int64_t end = std::min(rows, begin + held);
  tape.pixels = Tensor(rank_, held, kPatchValues);
  if (held > end - begin) {
    rank_.kernels.zero(rows_of(rank_, tape.pixels.view(), end - begin, held - (end - begin)));
  }
  upload(rank_, tape.pixels.view().data, rank_.kernels.dtype(),
         std::span<const float>(input.pixels)
             .subspan(static_cast<std::size_t>(begin * kPatchValues),
                      static_cast<std::size_t>((end - begin) * kPatchValues)));
  return linear_.forward(tape.pixels);
}

void PatchEmbedding::backward_input(Tensor d_out, PatchTape& tape) const {
  tape.d_patches = std::move(d_out);
}

void PatchEmbedding::backward_weight(PatchTape& tape) const {
  linear_.backward_weight(tape.d_patches, tape.pixels);
  tape = {};
}

Connector::Connector(const ModelSpec& model, ParameterStore& store, const RankContext& rank)
    : merge_(model.connector.merge), rank_(rank), norm_("encoder.norm", true, store, rank) {
  for (std::size_t i = 0; i + 1 < model.connector.widths.size(); ++i) {
    linears_.emplace_back("connector." + std::to_string(i), true, i % 2 == 0 ? Split::rows : Split::columns,
                          store, rank, TpSums::all);
  }
}

Tensor Connector::forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const {
  tape.rows = input.rows();
  tape.norm.x = std::move(x);
  norm_.forward(tape.norm);
  tape.outputs.push_back(linears_.front().forward(merged(all_normed(tape))));
  for (std::size_t i = 1; i < linears_.size(); ++i) {
    tape.inputs.emplace_back(rank_, tape.outputs.back().rows(), tape.outputs.back().columns());
    rank_.kernels.gelu(tape.inputs.back(), tape.outputs.back());
    tape.outputs.push_back(linears_[i].forward(tape.inputs.back()));
  }
  tape.pool_begin = IndexTensor(rank_, input.pool_begin);
  tape.pool_end = IndexTensor(rank_, input.pool_end);
  Tensor out(rank_, tape.pool_begin.size(), tape.outputs.back().columns());
  rank_.kernels.pool_rows(out, tape.outputs.back(), tape.pool_begin, tape.pool_end);
  return out;
}

Tensor Connector::backward_input(const Tensor& d_out, ConnectorTape& tape) const {
  tape.gradients.resize(linears_.size());
  for (std::size_t i = linears_.size(); i-- > 0;) {
    Tensor& gradient = tape.gradients[i];
    gradient = Tensor(rank_, tape.outputs[i].rows(), tape.outputs[i].columns());
    if (i + 1 == linears_.size()) {
      rank_.kernels.zero(Matrix(gradient));
      rank_.kernels.pool_rows_backward(gradient, d_out, tape.pool_begin, tape.pool_end);
    } else {
      const Tensor d_activated = linears_[i + 1].backward_input(tape.gradients[i + 1]);
      rank_.kernels.gelu_backward(gradient, d_activated, tape.outputs[i]);
    }
    tape.outputs[i] = {};
  }
  tape.pool_begin = {};
  tape.pool_end = {};
  // The layer does not sum it: shards are of rows before they are merged.
  Tensor d_normed = tp_summand(rank_, tape.rows, tape.norm.x.columns());
  const ConstMatrix& gradient = tape.gradients.front();
  linears_.front().backward_input_part({d_normed.view().data, gradient.rows, merge_ * d_normed.columns()},
                                       gradient);
  d_normed = tp_shard_sum(rank_, std::move(d_normed), "the parts of the connector's input gradient");
  return norm_.backward(d_normed, tape.norm);
}

void Connector::backward_weight(ConnectorTape& tape) const {
  linears_.front().backward_weight(tape.gradients.front(), merged(all_normed(tape)));
  for (std::size_t i = 1; i < linears_.size(); ++i) {
    linears_[i].backward_weight(tape.gradients[i], tape.inputs[i - 1]);
  }
  tape = {};
}

TokenEmbedding::TokenEmbedding(ParameterStore& store, const RankContext& rank)
    : rank_(rank), store_(store), table_(store.find("llm.embedding")) {}

Tensor TokenEmbedding::forward(const Tensor& encoded, const LlmInput& input, TokenTape& tape) const {
  Kernels& kernels = rank_.kernels;
  tape.text_ids = IndexTensor(rank_, input.text_ids);
  tape.text_rows = IndexTensor(rank_, input.text_rows);
  tape.encoded = IndexTensor(rank_, input.encoded);
  tape.encoded_rows = IndexTensor(rank_, input.encoded_rows);
  tape.encoder_rows = input.encoder_rows;
  Tensor text(rank_, tape.text_ids.size(), table_.columns);
  kernels.embedding(text, store_.weight(table_), tape.text_ids, table_.row_ranges.front().begin);
  if (!has_shards(rank_)) tp_sum(rank_, text, kEmbeddingParts);
  tape.rows = input.rows();
  Tensor x = tp_summand(rank_, tape.rows, table_.columns);
  kernels.zero(rows_of(rank_, x.view(), 0, tape.rows));
  kernels.scatter_add_rows(x, text, tape.text_rows);
  // Where text and encoder's tokens are summed together, one rank has the latter in its summand.
  if (!has_shards(rank_) || rank_.tp_rank == 0) {
    Tensor used(rank_, tape.encoded.size(), table_.columns);
    kernels.gather_rows(used, encoded, tape.encoded);
    kernels.scatter_add_rows(x, used, tape.encoded_rows);
  }
  return has_shards(rank_) ? tp_shard_sum(rank_, std::move(x), kEmbeddingParts) : std::move(x);
}

Tensor TokenEmbedding::backward(const Tensor& d_held, TokenTape& tape) const {
  Kernels& kernels = rank_.kernels;
  const AllRows d_out(rank_, d_held, tape.rows, kEndRows);
  {
    Tensor d_text(rank_, tape.text_rows.size(), table_.columns);
    kernels.gather_rows(d_text, d_out, tape.text_rows);
    kernels.embedding_backward(store_.gradient(table_), d_text, tape.text_ids,
                               table_.row_ranges.front().begin);
  }
  Tensor d_used(rank_, tape.encoded.size(), table_.columns);
  kernels.gather_rows(d_used, d_out, tape.encoded_rows);
  Tensor d_encoded(rank_, tape.encoder_rows, table_.columns);
  kernels.zero(Matrix(d_encoded));
  kernels.scatter_add_rows(d_encoded, d_used, tape.encoded);
  tape = {};
  return d_encoded;
}

LmHead::LmHead(ParameterStore& store, const RankContext& rank)
    : rank_(rank),
      first_class_(store.find("llm.head").row_ranges.front().begin),
      norm_("llm.norm", false, store, rank),
      head_("llm.head", false, Split::rows, store, rank) {}

SumTensor LmHead::merged_parts(const Tensor& logits, Indices targets) const {
  constexpr std::int64_t kParts = 3;
  const std::int64_t rows = logits.rows();
  SumTensor mine(rank_, rows, kParts);
  rank_.kernels.cross_entropy_parts(mine, logits, targets, first_class_);
  if (rank_.tp_size() == 1 || rows == 0) return mine;
  SumTensor all(rank_, rows * rank_.tp_size(), kParts);
  rank_.communicator.all_gather(all.view().data, mine.view().data, static_cast<std::size_t>(rows * kParts),
                                sum_type_of(rank_.kernels.dtype()), rank_.tp, rank_.compute,
                                "the parts of a loss");
  SumTensor merged(rank_, rows, kParts);
  rank_.kernels.cross_entropy_merge(merged, all, rank_.tp_size());
  return merged;
}

void LmHead::forward(Tensor x, const LlmInput& input, double token_weight, Sums loss,
                     LmHeadTape& tape) const {
  tape.norm.x = std::move(x);
  norm_.forward(tape.norm);
  const auto rows = static_cast<std::int64_t>(input.targets.size());
  tape.d_logits = head_.forward(AllRows(rank_, tape.norm.out, rows, kEndRows));
  const IndexTensor targets(rank_, input.targets);
  const SumTensor merged = merged_parts(tape.d_logits, targets);
  rank_.kernels.cross_entropy_backward(tape.d_logits, loss, merged, targets, first_class_, token_weight);
}

void LmHead::backward_weight(LmHeadTape& tape) const {
  head_.backward_weight(tape.d_logits, AllRows(rank_, tape.norm.out, tape.d_logits.rows(), kEndRows));
  tape = {};
}

}  // namespace dflop
