// What a training step computes on one device, operation by operation. The host's implementation is the
// reference that others are checked against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace dflop {

/// Of activations and weights. Sums (statistics, gradients of weights, optimizer states, master weights) are
/// f32, or f64 where activations are.
enum class DType : std::uint8_t { f32, f64, bf16 };

std::string_view to_string(DType dtype);
std::size_t bytes_of(DType dtype);      ///< of one value
std::size_t sum_bytes_of(DType dtype);  ///< of one sum

/// rows x columns values in device memory, row after row without gaps. Vectors have one row.
struct Matrix {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  std::int64_t size() const { return rows * columns; }
};
struct ConstMatrix {
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  ConstMatrix() = default;
  ConstMatrix(const void* d, std::int64_t r, std::int64_t c) : data(d), rows(r), columns(c) {}
  ConstMatrix(const Matrix& m) : data(m.data), rows(m.rows), columns(m.columns) {}  // NOLINT: as to const
  std::int64_t size() const { return rows * columns; }
};

/// The same of sums.
struct Sums {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  std::int64_t size() const { return rows * columns; }
};
struct ConstSums {
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  ConstSums() = default;
  ConstSums(const void* d, std::int64_t r, std::int64_t c) : data(d), rows(r), columns(c) {}
  ConstSums(const Sums& s) : data(s.data), rows(s.rows), columns(s.columns) {}  // NOLINT: as to const
  std::int64_t size() const { return rows * columns; }
};

/// Whole numbers that both sides can read: `host` for sizes and grids, `device` for kernels.
struct Indices {
  std::span<const std::int32_t> host;
  const std::int32_t* device = nullptr;  ///< the same numbers; on the host device the same memory
};

/// Attention over packed sequences: sequence i has the rows [offsets[i], offsets[i + 1]) of every matrix.
struct AttentionShape {
  int heads = 1;     ///< query heads on this rank
  int kv_heads = 1;  ///< divides heads
  int head_dim = 1;
  bool causal = false;

  /// Columns of the packed projection: queries of all heads, then keys, then values.
  std::int64_t qkv_columns() const { return std::int64_t{heads + 2 * kv_heads} * head_dim; }
  std::int64_t out_columns() const { return std::int64_t{heads} * head_dim; }
};

struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  std::int64_t step = 1;  ///< from 1 on
};

/// The operations of one rank, in order on its compute stream; a call may return before its work is done.
/// Not safe to call from several threads. Outputs do not overlap inputs unless a function says so. Matrices
/// without rows are allowed everywhere.
class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual DType dtype() const = 0;

  /// y[n, out] = x[n, in] * weight[out, in]^T + bias[1, out]. A bias without columns is none.
  virtual void linear(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) = 0;
  /// dx[n, in] = dy[n, out] * weight[out, in].
  virtual void linear_backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) = 0;
  /// dweight[out, in] += dy^T * x; dbias[1, out] += column sums of dy, unless it has no columns.
  virtual void linear_backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x) = 0;

  /// y = (x - mean) * rstd * gamma + beta by rows, rstd = 1 / sqrt(variance + epsilon). statistics[n, 2]
  /// keeps mean and rstd. gamma, beta: [1, columns].
  virtual void layer_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, ConstMatrix beta,
                          double epsilon) = 0;
  /// dx of layer_norm; dgamma and dbeta are added to. Without their columns they are left out, and so is dx
  /// without data.
  virtual void layer_norm_backward(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x,
                                   ConstMatrix gamma, ConstSums statistics) = 0;
  /// y = x * rstd * gamma by rows, rstd = 1 / sqrt(mean of x^2 + epsilon). statistics[n, 1] keeps rstd.
  virtual void rms_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, double epsilon) = 0;
  virtual void rms_norm_backward(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                                 ConstSums statistics) = 0;

  /// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
  virtual void gelu(Matrix y, ConstMatrix x) = 0;
  virtual void gelu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) = 0;
  /// y[n, f] = silu(gate) * up, of x[n, 2 f] = [gate | up]; silu(g) = g / (1 + exp(-g)).
  virtual void swiglu(Matrix y, ConstMatrix x) = 0;
  virtual void swiglu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) = 0;

  /// Turns queries and keys of a packed projection in place: the pair (i, i + head_dim / 2) of each head by
  /// position * base^(-2 i / head_dim). `inverse` turns back, which is its gradient. One position a row.
  virtual void rope(Matrix qkv, const AttentionShape& shape, Indices positions, double base,
                    bool inverse) = 0;

  /// out[n, heads * head_dim] = softmax(q k^T / sqrt(head_dim)) v within each sequence; query head h uses
  /// key head h / (heads / kv_heads). statistics[n, heads] keeps the logarithm of each row's sum of
  /// exponentials.
  virtual void attention(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
                         Indices offsets) = 0;
  virtual void attention_backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics,
                                  ConstMatrix qkv, const AttentionShape& shape, Indices offsets) = 0;

  /// y[i] = table[ids[i] - first] where that is one of the table's rows, else zeros: a vocabulary's part.
  virtual void embedding(Matrix y, ConstMatrix table, Indices ids, std::int64_t first) = 0;
  /// dtable[ids[i] - first] += dy[i].
  virtual void embedding_backward(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first) = 0;

  /// Of each row of logits[n, v], the classes [first, first + v): parts[n, 3] = largest logit, sum of
  /// exp(logit - largest), and the target's logit, 0 where the target is another rank's. A negative target
  /// is none.
  virtual void cross_entropy_parts(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first) = 0;
  /// Combines the parts of several ranks, one after the other in parts[ranks * n, 3], into merged[n, 3].
  virtual void cross_entropy_merge(Sums merged, ConstSums parts, int ranks) = 0;
  /// logits become their own gradient, weight * (softmax - 1 of the target); loss[1, 1] += weight * sum over
  /// rows of log(sum) + largest - target's logit. Rows without target have no loss, and zeros as gradient.
  virtual void cross_entropy_backward(Matrix logits, Sums loss, ConstSums merged, Indices targets,
                                      std::int64_t first, double weight) = 0;

  /// y[i] = mean of the rows [begin[i], end[i]) of x, which are at least one.
  virtual void pool_rows(Matrix y, ConstMatrix x, Indices begin, Indices end) = 0;
  virtual void pool_rows_backward(Matrix dx, ConstMatrix dy, Indices begin, Indices end) = 0;
  /// y[i] = x[index[i]].
  virtual void gather_rows(Matrix y, ConstMatrix x, Indices index) = 0;
  /// y[index[i]] += x[i]; an index may come again.
  virtual void scatter_add_rows(Matrix y, ConstMatrix x, Indices index) = 0;

  /// y += x.
  virtual void add(Matrix y, ConstMatrix x) = 0;
  virtual void zero(Matrix y) = 0;
  virtual void zero(Sums y) = 0;
  /// y = x, in the other precision.
  virtual void round(Matrix y, ConstSums x) = 0;
  /// scale * sums in place.
  virtual void scale(Sums y, double factor) = 0;

  /// Decoupled weight decay (Loshchilov and Hutter 2019): m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
  /// master -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) + decay master); weight = master,
  /// rounded.
  virtual void adamw(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient,
                     const AdamWStep& step) = 0;
};

}  // namespace dflop
