// This file computes attention in blocks of query rows. A block is multiplied with all keys that it sees, so
// scores need block * length values instead of length * length. The backward recomputes the probabilities
// from the statistics (Dao et al. 2022, FlashAttention, equations of appendix B).
#include <array>
#include <cmath>

#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

/// Rotates the pairs (first[i], second[i]) by the angles with these cosines and sines; `sign` -1 rotates
/// back.
template <typename T>
void turn(T* __restrict first, T* __restrict second, const T* __restrict cosine, const T* __restrict sine,
          T sign, Index pairs) {
  for (Index i = 0; i < pairs; ++i) {
    const T x = first[i];
    const T y = second[i];
    first[i] = x * cosine[i] - y * (sign * sine[i]);
    second[i] = y * cosine[i] + x * (sign * sine[i]);
  }
}

template <typename T>
void rope(Matrix qkv, const AttentionShape& shape, Indices rows, ConstSums turns, bool inverse) {
  const Index half = shape.head_dim / 2;
  const auto table = view<T>(turns);
  auto values = view<T>(qkv);
  for (Index row = 0; row < values.rows(); ++row) {
    const T* cosine = table.row(rows.host[static_cast<std::size_t>(row)]).data();
    for (Index head = 0; head < shape.heads + shape.kv_heads; ++head) {
      T* pairs = values.row(row).data() + head * shape.head_dim;
      turn<T>(pairs, pairs + half, cosine, cosine + half, inverse ? T(-1) : T(1), half);
    }
  }
}

constexpr Index kQueryRows = 64;

/// A Block is some query rows of one head in one sequence.
struct Block {
  int head = 0;
  Index begin = 0;  ///< first row of the sequence
  Index first = 0;  ///< first query, counted from begin
  Index rows = 0;   ///< queries
  Index keys = 0;   ///< keys that the last query sees, counted from begin
  bool causal = false;

  /// Returns the keys that query `row` of the block sees.
  Index visible(Index row) const { return causal ? first + row + 1 : keys; }
};

/// Calls f(Block) over all sequences, heads and query rows.
template <typename F>
void for_each_block(const AttentionShape& shape, Indices offsets, F f) {
  for (std::size_t i = 1; i < offsets.host.size(); ++i) {
    const Index begin = offsets.host[i - 1];
    const Index length = offsets.host[i] - begin;
    for (int head = 0; head < shape.heads; ++head) {
      for (Index first = 0; first < length; first += kQueryRows) {
        const Index rows = std::min(kQueryRows, length - first);
        f(Block{head, begin, first, rows, shape.causal ? first + rows : length, shape.causal});
      }
    }
  }
}

template <typename T>
using Scores = Eigen::Array<T, Eigen::Dynamic, 1>;

/// Returns memory for the scores of the largest block.
template <typename T>
Scores<T> block_scores(Indices offsets) {
  Index longest = 0;
  for (std::size_t i = 1; i < offsets.host.size(); ++i) {
    longest = std::max<Index>(longest, offsets.host[i] - offsets.host[i - 1]);
  }
  return Scores<T>(std::min(kQueryRows, longest) * longest);
}

template <typename T>
auto scores_of(const Block& block, Scores<T>& memory) {
  return Eigen::Map<RowMajor<T>>(memory.data(), block.rows, block.keys);
}

/// Parts are the queries, keys and values of a block, in a packed projection or its gradient.
template <typename Packed>
struct Parts {
  Packed& packed;
  const AttentionShape& shape;
  const Block& block;

  auto query() const {
    return packed.block(block.begin + block.first, Index{block.head} * shape.head_dim, block.rows,
                        shape.head_dim);
  }
  auto key() const { return of_group(shape.heads); }
  auto value() const { return of_group(shape.heads + shape.kv_heads); }

  /// Returns the key or value head that the query head belongs to, where those heads begin at `first_head`.
  auto of_group(int first_head) const {
    const Index head = first_head + block.head / (shape.heads / shape.kv_heads);
    return packed.block(block.begin, head * shape.head_dim, block.keys, shape.head_dim);
  }
};
template <typename Packed>
Parts(Packed&, const AttentionShape&, const Block&) -> Parts<Packed>;

/// Returns the block's part of attention's output or its gradient.
template <typename Rows>
auto output_part(Rows& rows, const AttentionShape& shape, const Block& block) {
  return rows.block(block.begin + block.first, Index{block.head} * shape.head_dim, block.rows,
                    shape.head_dim);
}

template <typename T>
T score_scale(const AttentionShape& shape) {
  return static_cast<T>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

/// Replaces scores by exponentials relative to the largest, and by 0 if not visible. Returns {largest, sum}.
template <typename Row>
auto exponentials(Row row, Index visible) {
  auto seen = row.head(visible).array();
  const auto largest = seen.maxCoeff();
  seen = (seen - largest).exp();
  row.tail(row.size() - visible).setZero();
  return std::array{largest, seen.sum()};
}

/// Replaces scores by probabilities, given the logarithm of the sum of exponentials.
template <typename Row, typename T>
void probabilities(Row row, Index visible, T log_sum) {
  auto seen = row.head(visible).array();
  seen = (seen - log_sum).exp();
  row.tail(row.size() - visible).setZero();
}

template <typename T>
void attention(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets) {
  const auto packed = view<T>(qkv);
  auto result = view<T>(out);
  auto log_sums = view<T>(statistics);
  const T scale = score_scale<T>(shape);
  Scores<T> memory = block_scores<T>(offsets);
  for_each_block(shape, offsets, [&](const Block& block) {
    const Parts parts{packed, shape, block};
    auto scores = scores_of(block, memory);
    product_transposed(part(scores), scale, const_part(parts.query()), const_part(parts.key()));
    std::array<T, kQueryRows> sums;
    for (Index row = 0; row < block.rows; ++row) {
      const auto [largest, sum] = exponentials(scores.row(row), block.visible(row));
      sums[static_cast<std::size_t>(row)] = sum;
      log_sums(block.begin + block.first + row, block.head) = largest + std::log(sum);
    }
    auto rows = output_part(result, shape, block);
    product(part(rows), T(1), const_part(scores), const_part(parts.value()));
    for (Index row = 0; row < block.rows; ++row) rows.row(row) /= sums[static_cast<std::size_t>(row)];
  });
}

template <typename T>
void attention_backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                        const AttentionShape& shape, Indices offsets) {
  const auto packed = view<T>(qkv);
  const auto result = view<T>(out);
  const auto gradient = view<T>(dout);
  const auto log_sums = view<T>(statistics);
  auto packed_gradient = view<T>(dqkv);
  packed_gradient.setZero();  // heads of a group, and blocks, add to the same keys and values
  const T scale = score_scale<T>(shape);
  Scores<T> memory = block_scores<T>(offsets);
  Scores<T> slope_memory(memory.size());
  for_each_block(shape, offsets, [&](const Block& block) {
    const Parts parts{packed, shape, block};
    const Parts slopes{packed_gradient, shape, block};
    const auto dy = output_part(gradient, shape, block);
    const auto y = output_part(result, shape, block);
    auto p = scores_of(block, memory);
    auto dp = scores_of(block, slope_memory);
    product_transposed(part(p), scale, const_part(parts.query()), const_part(parts.key()));
    product_transposed(part(dp), T(1), const_part(dy), const_part(parts.value()));
    for (Index row = 0; row < block.rows; ++row) {
      probabilities(p.row(row), block.visible(row), log_sums(block.begin + block.first + row, block.head));
      const T mean = dy.row(row).dot(y.row(row));  // mean of the slopes dp, weighted by the probabilities p
      dp.row(row).array() = p.row(row).array() * (dp.row(row).array() - mean);
    }
    add_transposed_product(part(slopes.value()), T(1), const_part(p), const_part(dy));
    product(part(slopes.query()), scale, const_part(dp), const_part(parts.key()));
    add_transposed_product(part(slopes.key()), scale, const_part(dp), const_part(parts.query()));
  });
}

}  // namespace

void set_attention(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.rope.set<rope<T>>();
    kernels.attention.set<attention<T>>();
    kernels.attention_backward.set<attention_backward<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
