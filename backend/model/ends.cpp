#include "backend/model/ends.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "backend/model/parameter_list.hpp"
#include "backend/model/side_by_side.hpp"

namespace dflop {
namespace {

constexpr const char* kEmbeddingParts = "the parts of an embedding";
constexpr const char* kConnectorRows = "the rows of the connector";
constexpr const char* kEndRows = "the rows of an end of the LLM";

/// Returns the name of the head's matrix. Tied embeddings use the same matrix.
std::string head_name(const ModelSpec& model) {
  return model.llm.tied_embeddings ? "llm.embedding" : "llm.head";
}

IndexTensor zeros_of(const RankContext& rank, std::int64_t count) {
  return {rank, std::vector<std::int32_t>(static_cast<std::size_t>(count), 0)};
}

/// TrainedRows are the rows that have targets, and their targets.
struct TrainedRows {
  explicit TrainedRows(std::span<const std::int32_t> of_rows) {
    for (std::size_t row = 0; row < of_rows.size(); ++row) {
      if (of_rows[row] < 0) continue;
      places.push_back(static_cast<std::int32_t>(row));
      targets.push_back(of_rows[row]);
    }
  }
  std::int64_t size() const { return static_cast<std::int64_t>(places.size()); }

  std::vector<std::int32_t> places;
  std::vector<std::int32_t> targets;
};

/// Returns factor * n + summand for each number n.
std::vector<std::int32_t> multiples(const std::vector<std::int32_t>& numbers, std::int64_t factor,
                                    std::int64_t summand) {
  std::vector<std::int32_t> all;
  all.reserve(numbers.size());
  for (const std::int32_t n : numbers) all.push_back(static_cast<std::int32_t>(factor * n + summand));
  return all;
}

std::vector<std::int32_t> part_of(const std::vector<std::int32_t>& numbers, std::int64_t begin,
                                  std::int64_t count) {
  return {numbers.begin() + begin, numbers.begin() + begin + count};
}

}  // namespace

Connector::Connector(const ModelSpec& model, const EncoderNames& names, ParameterStore& store,
                     const RankContext& rank, std::optional<int> deep)
    : form_(model.connector_form()),
      joins_first_(form_.selects || deep),
      joined_(model.joined_rows()),
      rank_(rank) {
  const std::string name = deep ? deep_connector_name(*deep) : names.connector;
  if (form_.norm)
    norm_.emplace(deep ? name + ".norm" : names.encoder + ".norm", *form_.norm, form_.epsilon, store, rank);
  const std::size_t linears = model.connector.widths.size() - 1;
  for (std::size_t i = 0; i < linears; ++i) {
    const bool has_second = i % 2 == 1 || i + 1 < linears;
    const Split split = !has_second ? Split::whole : i % 2 == 0 ? Split::rows : Split::columns;
    linears_.emplace_back(name + "." + std::to_string(i), true, split, store, rank, TpSums::all);
  }
}

/// Returns the first linear layer's input on all tp ranks: the rows that the tape keeps, joined.
Connector::Joined Connector::first_input(const ConnectorTape& tape) const {
  const Tensor& kept = norm_ ? tape.norm.out : tape.input;
  Joined input;
  input.rows = joins_first_ ? AllRows(kept) : AllRows(rank_, kept, tape.rows, kConnectorRows);
  const ConstMatrix rows = input.rows;
  input.matrix = {rows.data, rows.rows / joined_, rows.columns * joined_};
  if (joins_first_) input.matrix = rows;  // the rows are already joined before the norm
  return input;
}

/// Returns the rows of all tp ranks, selected if the connector selects rows, and joined.
Tensor Connector::selected_and_joined(const Tensor& x, const EncoderInput& input, ConnectorTape& tape) const {
  const AllRows all(rank_, x, tape.rows, kConnectorRows);
  Tensor selected;
  ConstMatrix rows = all;
  if (form_.selects) {
    selected = RowMixer(rank_, input.select)(rank_, all);
    tape.selected_back = RowMixer(rank_, input.select.transposed(tape.rows));
    rows = std::as_const(selected);
  }
  Tensor joined(rank_, rows.rows / joined_, rows.columns * joined_);
  rank_.kernels.zero(Matrix(joined));
  rank_.kernels.add(joined, {rows.data, joined.rows(), joined.columns()});
  return joined;
}

Tensor Connector::forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const {
  tape.rows = input.rows();
  Tensor& kept = norm_ ? tape.norm.x : tape.input;
  kept = joins_first_ ? selected_and_joined(x, input, tape) : std::move(x);
  x = {};
  if (norm_) norm_->forward(tape.norm);
  tape.outputs.push_back(linears_.front().forward(first_input(tape).matrix));
  for (std::size_t i = 1; i < linears_.size(); ++i) {
    tape.inputs.emplace_back(rank_, tape.outputs.back().rows(), tape.outputs.back().columns());
    apply(rank_.kernels, form_.activation, tape.inputs.back(), tape.outputs.back());
    tape.outputs.push_back(linears_[i].forward(tape.inputs.back()));
  }
  tape.sent_back = RowMixer(rank_, input.sent.transposed(tape.outputs.back().rows()));
  return RowMixer(rank_, input.sent)(rank_, tape.outputs.back());
}

/// Returns this rank's rows of a matrix of all rows; padding rows are zeros.
Tensor Connector::held_of(ConstMatrix all) const {
  const std::int64_t held = held_rows(rank_, all.rows);
  const std::int64_t begin = has_shards(rank_) ? held * rank_.tp_rank : 0;
  std::vector<std::int32_t> own(static_cast<std::size_t>(held), -1);
  for (std::int64_t row = 0; row < held && begin + row < all.rows; ++row) {
    own[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(begin + row);
  }
  Tensor rows(rank_, held, all.columns);
  rank_.kernels.embedding(rows, all, IndexTensor(rank_, std::move(own)), 0);
  return rows;
}

/// Returns the gradient of the rank's rows, given the gradient of the first linear layer's output, for a
/// connector that joins rows before the norm.
Tensor Connector::joined_first_backward(const Tensor& d_first, ConnectorTape& tape) const {
  Tensor d_joined = linears_.front().backward_input(d_first);
  if (norm_) d_joined = norm_->backward(d_joined, tape.norm);
  const ConstMatrix rows{d_joined.view().data, d_joined.rows() * joined_, d_joined.columns() / joined_};
  if (!form_.selects) return held_of(rows);
  const Tensor d_all = tape.selected_back(rank_, rows);
  tape.selected_back = {};
  return held_of(d_all);
}

/// Returns the same for a connector that joins rows after the norm.
Tensor Connector::normed_first_backward(const Tensor& d_first, ConnectorTape& tape) const {
  const std::int64_t columns = norm_ ? tape.norm.x.columns() : tape.input.columns();
  // The linear layer does not sum it over tp, because shards are of rows before they are joined.
  Tensor d_rows = tp_summand(rank_, tape.rows, columns);
  linears_.front().backward_input_part({d_rows.view().data, d_first.rows(), joined_ * columns}, d_first);
  if (!linears_.front().is_whole()) {
    d_rows = tp_shard_sum(rank_, std::move(d_rows), "the parts of the connector's input gradient");
  } else if (has_shards(rank_)) {
    d_rows = held_of(rows_of(rank_, ConstMatrix(d_rows), 0, tape.rows));
  }
  return norm_ ? norm_->backward(d_rows, tape.norm) : std::move(d_rows);
}

Tensor Connector::backward_input(const Tensor& d_out, ConnectorTape& tape) const {
  tape.gradients.resize(linears_.size());
  for (std::size_t i = linears_.size(); i-- > 0;) {
    Tensor& gradient = tape.gradients[i];
    if (i + 1 == linears_.size()) {
      gradient = tape.sent_back(rank_, d_out);
      tape.sent_back = {};
    } else {
      gradient = Tensor(rank_, tape.outputs[i].rows(), tape.outputs[i].columns());
      const Tensor d_activated = linears_[i + 1].backward_input(tape.gradients[i + 1]);
      apply_backward(rank_.kernels, form_.activation, gradient, d_activated, tape.outputs[i]);
    }
    tape.outputs[i] = {};
  }
  const Tensor& d_first = tape.gradients.front();
  return joins_first_ ? joined_first_backward(d_first, tape) : normed_first_backward(d_first, tape);
}

void Connector::backward_weight(ConnectorTape& tape) const {
  linears_.front().backward_weight(tape.gradients.front(), first_input(tape).matrix);
  for (std::size_t i = 1; i < linears_.size(); ++i) {
    linears_[i].backward_weight(tape.gradients[i], tape.inputs[i - 1]);
  }
  tape = {};
}

Connectors::Connectors(const ModelSpec& model, const EncoderNames& names, ParameterStore& store,
                       const RankContext& rank)
    : rank_(rank) {
  all_.emplace_back(model, names, store, rank);
  for (int deep = 0; deep < model.deep_features(); ++deep) all_.emplace_back(model, names, store, rank, deep);
}

void Connectors::begin(Tape& tape) const {
  tape.resize(all_.size());
}

void Connectors::take(int feature, Tensor x, const EncoderInput& input, Tape& tape) const {
  const auto c = static_cast<std::size_t>(1 + feature);
  tape[c].sent = all_[c].forward(std::move(x), input, tape[c]);
}

Tensor Connectors::forward(Tensor x, const EncoderInput& input, Tape& tape) const {
  std::vector<Tensor> sent;
  sent.push_back(all_.front().forward(std::move(x), input, tape.front()));
  if (all_.size() == 1) return std::move(sent.front());
  for (std::size_t c = 1; c < all_.size(); ++c) sent.push_back(std::move(tape[c].sent));
  return side_by_side(rank_, sent);
}

Tensor Connectors::backward_input(const Tensor& d_out, Tape& tape) const {
  if (all_.size() == 1) return all_.front().backward_input(d_out, tape.front());
  std::vector<Tensor> d_sent = taken_apart(rank_, d_out, static_cast<int>(all_.size()));
  for (std::size_t c = 1; c < all_.size(); ++c) tape[c].sent = std::move(d_sent[c]);
  return all_.front().backward_input(d_sent.front(), tape.front());
}

Tensor Connectors::backward_deep(int feature, Tape& tape) const {
  const auto c = static_cast<std::size_t>(1 + feature);
  const Tensor d_sent = std::move(tape[c].sent);
  return all_[c].backward_input(d_sent, tape[c]);
}

void Connectors::backward_weight(Tape& tape) const {
  for (std::size_t c = 0; c < all_.size(); ++c) all_[c].backward_weight(tape[c]);
}

TokenEmbedding::TokenEmbedding(const ModelSpec& model, ParameterStore& store, const RankContext& rank)
    : rank_(rank),
      store_(store),
      table_(store.find("llm.embedding")),
      newline_(model.architecture && model.architecture->newline ? &store.find("llm.newline") : nullptr),
      deep_(model.deep_features()) {}

Tensor TokenEmbedding::forward(const Tensor& encoded, const LlmInput& input, TokenTape& tape) const {
  Kernels& kernels = rank_.kernels;
  tape.text_ids = IndexTensor(rank_, input.text_ids);
  tape.text_rows = IndexTensor(rank_, input.text_rows);
  tape.encoded = IndexTensor(rank_, multiples(input.encoded, 1 + deep_, 0));
  tape.encoded_rows = IndexTensor(rank_, input.encoded_rows);
  tape.encoder_rows = input.encoder_rows;
  const ConstMatrix blocks{encoded.view().data, encoded.rows() * (1 + deep_), table_.columns};
  if (deep_ > 0) {
    tape.used = input.encoded;
    tape.used_rows = input.encoded_rows;
    for (int deep = 0; deep < deep_; ++deep) {
      tape.deep.emplace_back(rank_, tape.encoded.size(), table_.columns);
      kernels.gather_rows(tape.deep.back(), blocks,
                          IndexTensor(rank_, multiples(input.encoded, 1 + deep_, 1 + deep)));
    }
  }
  Tensor text(rank_, tape.text_ids.size(), table_.columns);
  kernels.embedding(text, store_.weight(table_), tape.text_ids, table_.row_ranges.front().begin);
  if (!has_shards(rank_)) tp_sum(rank_, text, kEmbeddingParts);
  tape.rows = input.rows();
  Tensor x = tp_summand(rank_, tape.rows, table_.columns);
  kernels.zero(rows_of(rank_, x.view(), 0, tape.rows));
  kernels.scatter_add_rows(x, text, tape.text_rows);
  if (newline_ != nullptr) tape.newline_rows = IndexTensor(rank_, input.newline_rows);
  // If text and encoder rows are summed together, only one rank adds the encoder's rows to its summand.
  if (!has_shards(rank_) || rank_.tp_rank == 0) {
    Tensor used(rank_, tape.encoded.size(), table_.columns);
    kernels.gather_rows(used, blocks, tape.encoded);
    kernels.scatter_add_rows(x, used, tape.encoded_rows);
    if (newline_ != nullptr) {
      Tensor newlines(rank_, tape.newline_rows.size(), table_.columns);
      kernels.embedding(newlines, store_.weight(*newline_), zeros_of(rank_, newlines.rows()), 0);
      kernels.scatter_add_rows(x, newlines, tape.newline_rows);
    }
  }
  return has_shards(rank_) ? tp_shard_sum(rank_, std::move(x), kEmbeddingParts) : std::move(x);
}

void TokenEmbedding::add_deep(int layer, Tensor& x, TokenTape& tape) const {
  if (layer >= deep_) return;
  Tensor& features = tape.deep[static_cast<std::size_t>(layer)];
  if (!has_shards(rank_)) {
    rank_.kernels.scatter_add_rows(x, features, tape.encoded_rows);
  } else {
    const std::int64_t first = rank_.tp_rank * x.rows();
    std::vector<std::int32_t> from;
    std::vector<std::int32_t> to;
    for (std::size_t i = 0; i < tape.used_rows.size(); ++i) {
      const std::int64_t row = tape.used_rows[i] - first;
      if (row < 0 || row >= x.rows()) continue;
      from.push_back(static_cast<std::int32_t>(i));
      to.push_back(static_cast<std::int32_t>(row));
    }
    Tensor own(rank_, std::ssize(from), features.columns());
    rank_.kernels.gather_rows(own, features, IndexTensor(rank_, std::move(from)));
    rank_.kernels.scatter_add_rows(x, own, IndexTensor(rank_, std::move(to)));
  }
  features = {};
}

void TokenEmbedding::keep_deep_gradient(int layer, const Tensor& d, TokenTape& tape) const {
  if (layer >= deep_) return;
  tape.d_deep.resize(static_cast<std::size_t>(deep_));
  Tensor& kept = tape.d_deep[static_cast<std::size_t>(layer)];
  kept = Tensor(rank_, tape.encoded_rows.size(), table_.columns);
  rank_.kernels.gather_rows(kept, AllRows(rank_, d, tape.rows, kEndRows), tape.encoded_rows);
}

Tensor TokenEmbedding::backward(const Tensor& d_held, TokenTape& tape) const {
  Kernels& kernels = rank_.kernels;
  const AllRows d_out(rank_, d_held, tape.rows, kEndRows);
  {
    Tensor d_text(rank_, tape.text_rows.size(), table_.columns);
    kernels.gather_rows(d_text, d_out, tape.text_rows);
    kernels.embedding_backward(store_.gradient_to_add_to(rank_, table_), d_text, tape.text_ids,
                               table_.row_ranges.front().begin);
  }
  if (newline_ != nullptr) {
    Tensor d_newlines(rank_, tape.newline_rows.size(), table_.columns);
    kernels.gather_rows(d_newlines, d_out, tape.newline_rows);
    kernels.embedding_backward(store_.gradient_to_add_to(rank_, *newline_), d_newlines,
                               zeros_of(rank_, d_newlines.rows()), 0);
  }
  Tensor d_used(rank_, tape.encoded.size(), table_.columns);
  kernels.gather_rows(d_used, d_out, tape.encoded_rows);
  Tensor d_encoded(rank_, tape.encoder_rows, (1 + deep_) * table_.columns);
  const Matrix blocks{d_encoded.view().data, tape.encoder_rows * (1 + deep_), table_.columns};
  kernels.zero(blocks);
  kernels.scatter_add_rows(blocks, d_used, tape.encoded);
  for (std::size_t deep = 0; deep < tape.d_deep.size(); ++deep) {
    kernels.scatter_add_rows(
        blocks, tape.d_deep[deep],
        IndexTensor(rank_, multiples(tape.used, 1 + deep_, 1 + static_cast<std::int64_t>(deep))));
  }
  tape = {};
  return d_encoded;
}

LmHead::LmHead(const ModelSpec& model, ParameterStore& store, const RankContext& rank)
    : rank_(rank),
      spec_(model.llm),
      first_class_(store.find(head_name(model)).row_ranges.front().begin),
      norm_("llm.norm", model.llm.layer_form().norm, model.llm.layer_form().epsilon, store, rank),
      head_(head_name(model), false, Split::rows, store, rank) {}

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

Tensor LmHead::d_logits(ConstMatrix normed, Indices targets, double token_weight, Sums loss) const {
  Tensor logits = head_.forward(normed);
  const SumTensor merged = merged_parts(logits, targets);
  rank_.kernels.cross_entropy_backward(logits, loss, merged, targets, first_class_, token_weight);
  return logits;
}

/// Calls f(places, words) for each chunk of the trained rows, with their indices and their targets.
template <typename F>
void LmHead::for_each_chunk(std::span<const std::int32_t> targets, const F& f) const {
  const TrainedRows trained(targets);
  const std::int64_t count = trained.size();
  const std::int64_t chunks = spec_.logit_chunks(count, rank_.tp_size());
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = count * c / chunks;
    const std::int64_t rows = count * (c + 1) / chunks - begin;
    f(IndexTensor(rank_, part_of(trained.places, begin, rows)),
      IndexTensor(rank_, part_of(trained.targets, begin, rows)));
  }
}

void LmHead::add_loss_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets,
                                double token_weight, Sums loss) const {
  for_each_chunk(targets, [&](const IndexTensor& places, const IndexTensor& words) {
    Tensor x(rank_, places.size(), normed.columns);
    rank_.kernels.gather_rows(x, normed, places);
    d_logits(x, words, token_weight, loss);
  });
}

Tensor LmHead::turn_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets, double token_weight,
                              Sums loss) const {
  Tensor d_normed = tp_summand(rank_, normed.rows, normed.columns);
  rank_.kernels.zero(rows_of(rank_, Matrix(d_normed), 0, normed.rows));
  for_each_chunk(targets, [&](const IndexTensor& places, const IndexTensor& words) {
    Tensor x(rank_, places.size(), normed.columns);
    rank_.kernels.gather_rows(x, normed, places);
    const Tensor d = d_logits(x, words, token_weight, loss);
    head_.backward_weight(d, x);
    head_.backward_input_part(x, d);  // overwrites the input, which nobody reads any more
    rank_.kernels.scatter_add_rows(d_normed, x, places);
  });
  return tp_shard_sum(rank_, std::move(d_normed), "the parts of the head's input gradient");
}

void LmHead::forward(Tensor x, const LlmInput& input, double token_weight, Sums loss, LmHeadTape& tape,
                     bool turns_back) const {
  tape.norm.x = std::move(x);
  norm_.forward(tape.norm);
  const auto rows = static_cast<std::int64_t>(input.targets.size());
  {
    const AllRows normed(rank_, tape.norm.out, rows, kEndRows);
    if (spec_.logits_at_once == 0) {
      tape.d_logits = d_logits(normed, IndexTensor(rank_, input.targets), token_weight, loss);
      return;
    }
    if (!turns_back) return add_loss_in_chunks(normed, input.targets, token_weight, loss);
    tape.d_normed = turn_in_chunks(normed, input.targets, token_weight, loss);
  }
  tape.norm.out = {};
}

Tensor LmHead::backward_input(LmHeadTape& tape) const {
  if (spec_.logits_at_once == 0) return norm_.backward(head_.backward_input(tape.d_logits), tape.norm);
  const Tensor d_normed = std::move(tape.d_normed);
  return norm_.backward(d_normed, tape.norm);
}

Tensor LmHead::logits(const Tensor& x, std::int64_t all, std::vector<std::int32_t> rows) const {
  const IndexTensor which(rank_, std::move(rows));
  NormTape chosen;
  chosen.x = Tensor(rank_, which.size(), x.columns());
  rank_.kernels.gather_rows(chosen.x, AllRows(rank_, x, all, kEndRows), which);
  norm_.forward(chosen);
  return head_.forward(chosen.out);
}

void LmHead::backward_weight(LmHeadTape& tape) const {
  if (spec_.logits_at_once == 0) {
    head_.backward_weight(tape.d_logits, AllRows(rank_, tape.norm.out, tape.d_logits.rows(), kEndRows));
  }
  tape = {};
}

}  // namespace dflop
