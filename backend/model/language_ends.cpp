#include "backend/model/language_ends.hpp"

#include "backend/model/tp_rows.hpp"

namespace dflop {
namespace {

constexpr const char* kEmbeddingParts = "the parts of an embedding";
constexpr const char* kRows = "the rows of an end of the LLM";

}  // namespace

Embedding::Embedding(ParameterStore& store, const RankContext& rank)
    : rank_(rank), store_(store), table_(store.find("llm.embedding")) {}

Tensor Embedding::forward(const Tensor& encoded, const LlmInput& input, EmbeddingTape& tape) const {
  Kernels& kernels = rank_.kernels;
  tape.text_ids = IndexTensor(rank_, input.text_ids);
  tape.text_rows = IndexTensor(rank_, input.text_rows);
  tape.encoded = IndexTensor(rank_, input.encoded);
  tape.encoded_rows = IndexTensor(rank_, input.encoded_rows);
  tape.encoder_rows = input.encoder_rows;
  Tensor text(rank_, tape.text_ids.size(), table_.columns);
  kernels.embedding(text, store_.weight(table_), tape.text_ids, table_.row_ranges.front().begin);
  if (!has_shards(rank_)) tp_sum(rank_, text, kEmbeddingParts);
  tape.rows = static_cast<std::int64_t>(input.positions.size());
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

Tensor Embedding::backward(const Tensor& d_held, EmbeddingTape& tape) const {
  Kernels& kernels = rank_.kernels;
  const AllRows d_out(rank_, d_held, tape.rows, kRows);
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

Head::Head(ParameterStore& store, const RankContext& rank)
    : rank_(rank),
      first_class_(store.find("llm.head").row_ranges.front().begin),
      norm_("llm.norm", false, store, rank),
      head_("llm.head", false, Split::rows, store, rank) {}

SumTensor Head::merged_parts(const Tensor& logits, Indices targets) const {
  constexpr std::int64_t kParts = 3;
  const std::int64_t rows = logits.rows();
  SumTensor mine(rank_, rows, kParts);
  rank_.kernels.cross_entropy_parts(mine, logits, targets, first_class_);
  if (rank_.tp_size() == 1 || rows == 0) return mine;
  SumTensor all(rank_, rows * rank_.tp_size(), kParts);
  rank_.communicator.all_gather(all.view().data, mine.view().data, static_cast<std::size_t>(rows * kParts),
                                sum_element_of(rank_.kernels.dtype()), rank_.tp, rank_.compute,
                                "the parts of a loss");
  SumTensor merged(rank_, rows, kParts);
  rank_.kernels.cross_entropy_merge(merged, all, rank_.tp_size());
  return merged;
}

void Head::forward(Tensor x, const LlmInput& input, double token_weight, Sums loss, HeadTape& tape) const {
  tape.x = std::move(x);
  tape.normed = norm_.forward(tape.x, tape.statistics);
  const auto rows = static_cast<std::int64_t>(input.targets.size());
  tape.d_logits = head_.forward(AllRows(rank_, tape.normed, rows, kRows));
  const IndexTensor targets(rank_, input.targets);
  const SumTensor merged = merged_parts(tape.d_logits, targets);
  rank_.kernels.cross_entropy_backward(tape.d_logits, loss, merged, targets, first_class_, token_weight);
}

Tensor Head::backward_input(HeadTape& tape) const {
  Tensor d_x = norm_.backward(head_.backward_input(tape.d_logits), tape.x, tape.statistics);
  tape.x = {};
  tape.statistics = {};
  return d_x;
}

void Head::backward_weight(HeadTape& tape) const {
  head_.backward_weight(tape.d_logits, AllRows(rank_, tape.normed, tape.d_logits.rows(), kRows));
  tape = {};
}

}  // namespace dflop
