// This file computes attention over blocks of queries and blocks of keys. The softmax of a row is corrected
// when a later block of keys has a larger score (Dao et al. 2022, FlashAttention, algorithm 1). The query
// heads of one key head are rows of the same products. Keys that no query of a block sees are skipped.
#include <algorithm>
#include <cmath>

#include "kernels/host/scratch.hpp"
#include "kernels/host/tiles.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

constexpr Index kForwardKeys = 512;   ///< keys of a block
constexpr Index kBackwardKeys = 256;  ///< the backward has twice the scores
constexpr Index kApart = 16;  ///< values between rows of scores, which would else share few cache sets

/// A Carver allocates parts of the calling thread's scratch memory.
template <typename T>
class Carver {
 public:
  explicit Carver(Index values)
      : next_(static_cast<T*>(
            host::thread_scratch(sizeof(T) * static_cast<std::size_t>(values + kMax * kAligned)))) {}
  /// Returns memory for `values` values, aligned to a cache line. It may be called at most kMax times.
  T* take(Index values) {
    T* taken = next_;
    next_ += (values + kAligned - 1) / kAligned * kAligned;
    return taken;
  }

 private:
  static constexpr Index kAligned = static_cast<Index>(host::kAlignment) / static_cast<Index>(sizeof(T));
  static constexpr Index kMax = 24;
  T* next_;
};

/// A Head is one key head and its query heads in one sequence.
struct Head {
  Index begin = 0;  ///< first row of the sequence
  Index length = 0;
  Index key = 0;    ///< the key head
  Index group = 1;  ///< query heads
  Index width = 1;
  bool causal = false;

  Index query_column() const { return key * group * width; }
};

/// A QueryBlock is a range of positions of a head's queries, with `group` rows for each position.
struct QueryBlock {
  Index first = 0;  ///< position in the sequence
  Index positions = 0;
  Index rows = 0;
  Index keys = 0;  ///< number that the last row sees
};

/// Calls f(row, position, head) for the rows of a block: the row's index in the block, its position in the
/// sequence, and its query head.
template <typename F>
inline void for_each_row(const Head& head, const QueryBlock& block, F f) {
  Index row = 0;
  for (Index position = block.first; position < block.first + block.positions; ++position) {
    for (Index query = 0; query < head.group; ++query) f(row++, position, head.key * head.group + query);
  }
}

/// Returns the number of keys in [first, first + count) that a position sees.
inline Index visible(const Head& head, Index position, Index first, Index count) {
  return head.causal ? std::clamp<Index>(position + 1 - first, 0, count) : count;
}

/// Calls f(Head) for each non-empty sequence and each key head.
template <typename F>
void for_each_head(const AttentionShape& shape, Indices offsets, F f) {
  for (std::size_t i = 1; i < offsets.host.size(); ++i) {
    const Index begin = offsets.host[i - 1];
    const Index length = offsets.host[i] - begin;
    for (Index key = 0; length > 0 && key < shape.kv_heads; ++key) {
      f(Head{begin, length, key, shape.heads / shape.kv_heads, shape.head_dim, shape.causal});
    }
  }
}

/// Calls f(QueryBlock) for each block of a head's queries.
template <typename F>
void for_each_query_block(const Head& head, Index positions, F f) {
  for (Index first = 0; first < head.length; first += positions) {
    const Index count = std::min(positions, head.length - first);
    f(QueryBlock{first, count, count * head.group, head.causal ? first + count : head.length});
  }
}

/// Calls f(first, count, reach) for blocks of the keys that a query block sees. `reach` is `count` rounded up
/// to whole panels, but not past the end of the sequence.
template <typename T, typename F>
void for_each_key_block(const Head& head, const QueryBlock& block, Index size, F f) {
  for (Index first = 0; first < block.keys; first += size) {
    const Index count = std::min(size, block.keys - first);
    f(first, count, std::min((count + kPanel<T> - 1) / kPanel<T> * kPanel<T>, head.length - first));
  }
}

/// Sizes holds the sizes of the largest head and block of a call.
template <typename T>
struct Sizes {
  Index longest = 0;
  Index positions = 1;
  Index rows = 1;
  Index width;  ///< width of a head's row, in whole vectors
  Index score_stride;

  Sizes(const AttentionShape& shape, Indices offsets, Index most_rows, Index key_block)
      : width(padded<T>(shape.head_dim)) {
    for (std::size_t i = 1; i < offsets.host.size(); ++i) {
      longest = std::max<Index>(longest, offsets.host[i] - offsets.host[i - 1]);
    }
    const Index group = shape.heads / shape.kv_heads;
    positions = std::clamp<Index>(most_rows / group, 1, std::max<Index>(longest, 1));
    rows = positions * group;
    score_stride = padded<T>(std::min(longest, key_block)) + kApart;
  }
};

template <typename T>
T scale_of_scores(const AttentionShape& shape) {
  return static_cast<T>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

/// Copies a block's rows of a matrix with a head's query columns, times a factor.
template <typename T>
void stack(T* rows, const T* matrix, Index stride, const Head& head, const QueryBlock& block, T factor) {
  const Index count = head.group * head.width;
  for (Index position = 0; position < block.positions; ++position) {
    const T* from = matrix + (head.begin + block.first + position) * stride + head.query_column();
    map_values(rows + position * count, from, count, [factor](auto x) { return x * factor; });
  }
}

/// Copies rows to the block's rows of a matrix with a head's query columns, each row times its own factor.
template <typename T, typename Factor>
void unstack(T* matrix, Index stride, Rows<const T> rows, const Head& head, const QueryBlock& block,
             Factor factor) {
  for_each_row(head, block, [&](Index row, Index position, Index query) {
    const T times = factor(row);
    map_values(matrix + (head.begin + position) * stride + query * head.width, rows.data + row * rows.stride,
               head.width, [times](auto x) { return x * times; });
  });
}

/// Packed holds the keys and values of a head in a packed projection, starting at their first row.
template <typename T>
struct Packed {
  Rows<const T> keys;
  Rows<const T> values;

  Packed(ConstMatrix qkv, const AttentionShape& shape, const Head& head) {
    const T* row = static_cast<const T*>(qkv.data) + head.begin * qkv.columns;
    keys = {row + (shape.heads + head.key) * head.width, qkv.columns};
    values = {row + (shape.heads + shape.kv_heads + head.key) * head.width, qkv.columns};
  }
};

/// Sets the values [from, to) of a row.
template <typename T>
void fill(T* row, Index from, Index to, T value) {
  for (Index i = from; i < to; ++i) row[i] = value;
}

/// Sets scores past `seen` so low that they do not count, up to the next whole vector, and later ones to 0.
template <typename T>
Index mask(T* row, Index seen, Index count) {
  const Index vectors = padded<T>(seen);
  fill(row, seen, vectors, std::numeric_limits<T>::lowest());
  fill(row, vectors, count, T(0));
  return vectors;
}

template <typename T>
struct Softmax {
  T largest = std::numeric_limits<T>::lowest();
  T sum = 0;

  /// Replaces the scores of a row by exponentials relative to the row's largest score so far. Returns the
  /// factor by which earlier exponentials must be multiplied.
  T take(T* row, Index seen, Index count) {
    const Index vectors = mask(row, seen, count);
    if (seen == 0) return T(1);
    Vector<T> most = load(row);
    for (Index i = kLanes<T>; i < vectors; i += kLanes<T>) {
      const Vector<T> x = load(row + i);
      most = x > most ? x : most;
    }
    const T before = largest;
    largest = std::max<T>(before, largest_of<T>(most));
    Vector<T> sums = {};
    for (Index i = 0; i < vectors; i += kLanes<T>) {
      const Vector<T> power = exponential<T>(load(row + i) - largest);
      store<T>(row + i, power);
      sums += power;
    }
    const T change = sum > 0 ? std::exp(before - largest) : T(0);
    sum = sum * change + sum_of<T>(sums);
    return change;
  }
};

template <typename T, int kRows>
void tiled_attention(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
                     Indices offsets) {
  const Sizes<T> sizes(shape, offsets, kRows, kForwardKeys);
  Carver<T> carver(shape.head_dim * padded<T>(sizes.longest) + sizes.longest * sizes.width +
                   sizes.rows * (shape.head_dim + sizes.score_stride + sizes.width + 2));
  T* const keys = carver.take(shape.head_dim * padded<T>(sizes.longest));
  T* const values = carver.take(sizes.longest * sizes.width);
  T* const queries = carver.take(sizes.rows * shape.head_dim);
  T* const scores = carver.take(sizes.rows * sizes.score_stride);
  T* const sums = carver.take(sizes.rows * sizes.width);
  auto* const softmax = reinterpret_cast<Softmax<T>*>(carver.take(2 * sizes.rows));
  const T scale = scale_of_scores<T>(shape);
  auto* const log_sums = static_cast<T*>(statistics.data);
  for_each_head(shape, offsets, [&](const Head& head) {
    const Packed<T> packed(qkv, shape, head);
    pack_transposed(keys, packed.keys, head.width, head.length);
    pack(values, packed.values, head.length, head.width);
    for_each_query_block(head, sizes.positions, [&](const QueryBlock& block) {
      stack(queries, static_cast<const T*>(qkv.data), qkv.columns, head, block, scale);
      std::fill_n(softmax, block.rows, Softmax<T>());
      for_each_key_block<T>(head, block, kForwardKeys, [&](Index first, Index count, Index reach) {
        multiply<T>({scores, sizes.score_stride}, {queries, head.width}, keys + first * head.width,
                    head.width, 0, block.rows, reach, head.width, false);
        for_each_row(head, block, [&](Index row, Index position, Index) {
          const T change = softmax[row].take(scores + row * sizes.score_stride,
                                             visible(head, position, first, count), count);
          T* const sum = sums + row * sizes.width;
          if (first > 0) map_values(sum, sum, sizes.width, [change](auto x) { return x * change; });
        });
        multiply<T>({sums, sizes.width}, {scores, sizes.score_stride}, values, head.length, first, block.rows,
                    head.width, count, first > 0);
      });
      unstack<T>(static_cast<T*>(out.data), out.columns, {sums, sizes.width}, head, block,
                 [&](Index row) { return T(1) / softmax[row].sum; });
      for_each_row(head, block, [&](Index row, Index position, Index query) {
        log_sums[(head.begin + position) * shape.heads + query] =
            softmax[row].largest + std::log(softmax[row].sum);
      });
    });
  });
}

/// Replaces scores by probabilities, and `slopes` by the gradients of the scores: p (dp - mean).
template <typename T>
void score_gradients(T* row, T* slopes, Index seen, Index count, T log_sum, T mean) {
  const Index vectors = mask(row, seen, count);
  for (Index i = 0; i < vectors; i += kLanes<T>) {
    const Vector<T> p = exponential<T>(load(row + i) - log_sum);
    store<T>(row + i, p);
    store<T>(slopes + i, p * (load(slopes + i) - mean));
  }
  fill(slopes, seen, count, T(0));
}

template <typename T>
T inner_product(const T* a, const T* b, Index count) {
  Vector<T> sums = {};
  Index i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) sums += load(a + i) * load(b + i);
  T sum = sum_of<T>(sums);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

template <typename T, int kRows>
void tiled_attention_backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics,
                              ConstMatrix qkv, const AttentionShape& shape, Indices offsets) {
  const Sizes<T> sizes(shape, offsets, kRows, kBackwardKeys);
  const Index width = shape.head_dim;
  const Index longest = sizes.longest;
  Carver<T> carver(2 * width * padded<T>(longest) + 3 * longest * sizes.width +
                   sizes.rows * (3 * width + 2 * sizes.score_stride + 3 * sizes.width));
  T* const keys_across = carver.take(width * padded<T>(longest));
  T* const values_across = carver.take(width * padded<T>(longest));
  T* const keys = carver.take(longest * sizes.width);
  T* const d_keys = carver.take(longest * sizes.width);
  T* const d_values = carver.take(longest * sizes.width);
  T* const queries = carver.take(sizes.rows * width);
  T* const query_panels = carver.take(sizes.rows * sizes.width);
  T* const slopes = carver.take(sizes.rows * width);
  T* const slope_panels = carver.take(sizes.rows * sizes.width);
  T* const outputs = carver.take(sizes.rows * width);
  T* const scores = carver.take(sizes.rows * sizes.score_stride);
  T* const d_scores = carver.take(sizes.rows * sizes.score_stride);
  T* const d_queries = carver.take(sizes.rows * sizes.width);
  const T scale = scale_of_scores<T>(shape);
  const auto* const log_sums = static_cast<const T*>(statistics.data);
  auto* const gradients = static_cast<T*>(dqkv.data);
  for_each_head(shape, offsets, [&](const Head& head) {
    const Packed<T> packed(qkv, shape, head);
    pack_transposed(keys_across, packed.keys, width, head.length);
    pack_transposed(values_across, packed.values, width, head.length);
    pack(keys, packed.keys, head.length, width);
    std::fill_n(d_keys, head.length * sizes.width, T(0));
    std::fill_n(d_values, head.length * sizes.width, T(0));
    for_each_query_block(head, sizes.positions, [&](const QueryBlock& block) {
      stack(queries, static_cast<const T*>(qkv.data), qkv.columns, head, block, scale);
      stack(slopes, static_cast<const T*>(dout.data), dout.columns, head, block, T(1));
      stack(outputs, static_cast<const T*>(out.data), out.columns, head, block, T(1));
      pack<T>(query_panels, {queries, width}, block.rows, width);
      pack<T>(slope_panels, {slopes, width}, block.rows, width);
      for_each_key_block<T>(head, block, kBackwardKeys, [&](Index first, Index count, Index reach) {
        const Rows<T> p{scores, sizes.score_stride};
        const Rows<T> dp{d_scores, sizes.score_stride};
        multiply<T>(p, {queries, width}, keys_across + first * width, width, 0, block.rows, reach, width,
                    false);
        multiply<T>(dp, {slopes, width}, values_across + first * width, width, 0, block.rows, reach, width,
                    false);
        for_each_row(head, block, [&](Index row, Index position, Index query) {
          score_gradients<T>(p.data + row * p.stride, dp.data + row * dp.stride,
                             visible(head, position, first, count), count,
                             log_sums[(head.begin + position) * shape.heads + query],
                             inner_product(slopes + row * width, outputs + row * width, width));
        });
        multiply<T>({d_values + first * sizes.width, sizes.width}, {p.data, 1, p.stride}, slope_panels,
                    block.rows, 0, count, width, block.rows, true);
        multiply<T>({d_keys + first * sizes.width, sizes.width}, {dp.data, 1, dp.stride}, query_panels,
                    block.rows, 0, count, width, block.rows, true);
        multiply<T>({d_queries, sizes.width}, {dp.data, dp.stride}, keys, head.length, first, block.rows,
                    width, count, first > 0);
      });
      unstack<T>(gradients, dqkv.columns, {d_queries, sizes.width}, head, block,
                 [&](Index) { return scale; });
    });
    for (Index row = 0; row < head.length; ++row) {
      T* const to = gradients + (head.begin + row) * dqkv.columns;
      std::copy_n(d_keys + row * sizes.width, width, to + (shape.heads + head.key) * width);
      std::copy_n(d_values + row * sizes.width, width,
                  to + (shape.heads + shape.kv_heads + head.key) * width);
    }
  });
}

}  // namespace

void add_tiled_attention(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.attention.add<tiled_attention<T, 32>>(DFLOP_HOST_TARGET_NAME " 32 rows");
    kernels.attention.add<tiled_attention<T, 64>>(DFLOP_HOST_TARGET_NAME " 64 rows");
    kernels.attention.add<tiled_attention<T, 256>>(DFLOP_HOST_TARGET_NAME " 256 rows");
    kernels.attention_backward.add<tiled_attention_backward<T, 32>>(DFLOP_HOST_TARGET_NAME " 32 rows");
    kernels.attention_backward.add<tiled_attention_backward<T, 64>>(DFLOP_HOST_TARGET_NAME " 64 rows");
    kernels.attention_backward.add<tiled_attention_backward<T, 256>>(DFLOP_HOST_TARGET_NAME " 256 rows");
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
