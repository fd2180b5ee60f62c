#include "backend/model/embeddings.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "backend/model/synthetic.hpp"
#include "backend/model/tp_rows.hpp"

namespace dflop {
namespace {

constexpr const char* kEmbeddingParts = "the parts of an embedding";

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
  upload(rank_, tape.pixels.view().data, element_of(rank_.kernels.dtype()),
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
  const AllRows d_out(rank_, d_held, tape.rows, "the rows of an end of the LLM");
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

}  // namespace dflop
