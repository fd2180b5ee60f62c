#include "backend/model/lm_head.hpp"

#include "backend/model/tp_rows.hpp"

namespace dflop {
namespace {

constexpr const char* kRows = "the rows of an end of the LLM";

}  // namespace

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
                                sum_element_of(rank_.kernels.dtype()), rank_.tp, rank_.compute,
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
  tape.d_logits = head_.forward(AllRows(rank_, tape.norm.out, rows, kRows));
  const IndexTensor targets(rank_, input.targets);
  const SumTensor merged = merged_parts(tape.d_logits, targets);
  rank_.kernels.cross_entropy_backward(tape.d_logits, loss, merged, targets, first_class_, token_weight);
}

Tensor LmHead::backward_input(LmHeadTape& tape) const {
  return norm_.backward(head_.backward_input(tape.d_logits), tape.norm);
}

void LmHead::backward_weight(LmHeadTape& tape) const {
  head_.backward_weight(tape.d_logits, AllRows(rank_, tape.norm.out, tape.d_logits.rows(), kRows));
  tape = {};
}

}  // namespace dflop
