#include "backend/model/patch_embedding.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "backend/model/synthetic.hpp"
#include "backend/model/tp_rows.hpp"

namespace dflop {

PatchEmbedding::PatchEmbedding(ParameterStore& store, const RankContext& rank)
    : rank_(rank), linear_("encoder.patches", false, Split::rows, store, rank) {}

Tensor PatchEmbedding::forward(const EncoderInput& input, PatchTape& tape) const {
  const auto rows = static_cast<std::int64_t>(input.positions.size());
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

}  // namespace dflop
