// Kernels compute a training step on one device, operation by operation. The host's functions are the
// reference that others are checked against. kernels/README.md says how an operation is added.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/operation.hpp"
#include "kernels/stored_numbers.hpp"

namespace dflop {

/// An AttentionShape is that of attention over packed sequences: sequence i has the rows [offsets[i],
/// offsets[i + 1]) of every matrix.
struct AttentionShape {
  int heads = 1;     ///< query heads on this rank
  int kv_heads = 1;  ///< divides heads
  int head_dim = 1;
  bool causal = false;

  /// Returns the columns of the packed projection: queries of all heads, then keys, then values.
  std::int64_t qkv_columns() const { return std::int64_t{heads + 2 * kv_heads} * head_dim; }
  std::int64_t out_columns() const { return std::int64_t{heads} * head_dim; }
};

/// Returns what is known of a call of attention or its backward over so many tokens; pairs: the sum of the
/// squared lengths, as Workload counts them. The precision stays open.
KernelCall attention_call(KernelOperation operation, const AttentionShape& shape, std::int64_t tokens,
                          std::int64_t pairs);

/// An AdamWStep has the numbers of one step of the optimizer.
struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  std::int64_t step = 1;  ///< from 1 on
  double gradient_factor =
      1;  ///< gradients are multiplied by it when they are used, and stay unchanged in memory
};

/// A Beta is the factor of what a product's result held before, as in BLAS. With zero nothing of that is
/// read.
enum class Beta : std::uint8_t { zero, one };

/// Kernels are the operations of one rank, in order on its compute stream; a call may return before its work
/// is done. They are not safe to call from several threads. Outputs do not overlap inputs unless a comment
/// says so. Matrices without rows are allowed everywhere.
class Kernels {
 public:
  explicit Kernels(DType dtype);
  virtual ~Kernels() = default;
  DType dtype() const { return dtype_; }

  /// Lets a guide choose between variants from now on; null: the first of each again. It outlives this.
  virtual void guide(KernelGuide* guide);
  /// Returns the variants among which a guide chooses.
  virtual VariantNames variant_names() const;

  // These are linear layers.

  /// y[n, out] = x[n, in] * weight[out, in]^T + bias[1, out]. A bias without columns is none.
  Operation<void(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias)> linear;
  /// dx[n, in] = dy[n, out] * weight[out, in].
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix weight)> linear_backward_input;
  /// dweight[out, in] = beta * dweight + dy^T * x; dbias[1, out] += column sums of dy, unless it has no
  /// columns.
  Operation<void(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x, Beta beta)> linear_backward_weight;

  // These are norms.

  /// x += added, as add does and rounds; then y = (x - mean) * rstd * gamma + beta by rows, rstd =
  /// 1 / sqrt(variance + epsilon). statistics[n, 2] keeps mean and rstd. gamma, beta: [1, columns]. An
  /// `added` without data is none, and x stays the same.
  Operation<void(Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added, ConstMatrix gamma,
                 ConstMatrix beta, double epsilon)>
      layer_norm;
  /// dx = the gradient of layer_norm + added, rounded once; dgamma and dbeta are added to. Without their
  /// columns they are left out, and without data dx and `added`.
  Operation<void(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                 ConstSums statistics, ConstMatrix added)>
      layer_norm_backward;
  /// x += added as in layer_norm; then y = x * rstd * gamma by rows, rstd = 1 / sqrt(mean of x^2 + epsilon).
  /// statistics[n, 1] keeps rstd.
  Operation<void(Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added, ConstMatrix gamma,
                 double epsilon)>
      rms_norm;
  /// dx = the gradient of rms_norm + added; dgamma is added to. Each is left out as in layer_norm_backward.
  Operation<void(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                 ConstSums statistics, ConstMatrix added)>
      rms_norm_backward;

  // These are activations.

  /// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
  Operation<void(Matrix y, ConstMatrix x)> gelu;
  /// dx = dy * the derivative of gelu at x.
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix x)> gelu_backward;
  /// y = x / 2 * (1 + erf(x / sqrt(2))).
  Operation<void(Matrix y, ConstMatrix x)> gelu_erf;
  /// dx = dy * the derivative of gelu_erf at x.
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix x)> gelu_erf_backward;
  /// y[n, f] = silu(gate) * up, of x[n, 2 f] = [gate | up]; silu(g) = g / (1 + exp(-g)).
  Operation<void(Matrix y, ConstMatrix x)> swiglu;
  /// dx[n, 2 f] is the gradient of swiglu at x, of dy[n, f].
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix x)> swiglu_backward;

  // This is attention.

  /// Turns queries and keys of a packed projection in place: the pair (i, i + head_dim / 2) of each head in
  /// row r by the angle whose cosine is turns[rows[r], i], and whose sine turns[rows[r], i + head_dim / 2].
  /// `inverse` turns back, which is its gradient.
  Operation<void(InOutMatrix qkv, const AttentionShape& shape, Indices rows, ConstSums turns, bool inverse)>
      rope;
  /// out[n, heads * head_dim] = softmax(q k^T / sqrt(head_dim)) v within each sequence; query head h uses
  /// key head h / (heads / kv_heads). statistics[n, heads] keeps the logarithm of each row's sum of
  /// exponentials.
  Operation<void(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets)>
      attention;
  /// dqkv is the gradient of attention, of dout, with the out and the statistics that it gave.
  Operation<void(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                 const AttentionShape& shape, Indices offsets)>
      attention_backward;

  // These work on rows.

  /// y[i] = table[ids[i] - first] where that is one of the table's rows, else zeros: a vocabulary's part.
  Operation<void(Matrix y, ConstMatrix table, Indices ids, std::int64_t first)> embedding;
  /// dtable[ids[i] - first] += dy[i].
  Operation<void(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first)> embedding_backward;
  /// y[i] = the sum of weights[1, k] * x[index[k]] over k in [begin[i], end[i]); zeros where there is none.
  /// Its gradient is the same of the transposed lists.
  Operation<void(Matrix y, ConstMatrix x, Indices begin, Indices end, Indices index, ConstSums weights)>
      mix_rows;
  /// y[i] = x[index[i]].
  Operation<void(Matrix y, ConstMatrix x, Indices index)> gather_rows;
  /// y[index[i]] += x[i]; an index may come again.
  Operation<void(InOutMatrix y, ConstMatrix x, Indices index)> scatter_add_rows;

  // These work on columns.

  /// y = x * scale[1, columns], by rows.
  Operation<void(Matrix y, ConstMatrix x, ConstMatrix scale)> scale_columns;
  /// sum[1, columns] += column sums of a * b.
  Operation<void(Sums sum, ConstMatrix a, ConstMatrix b)> column_products;

  // This is the loss: cross entropy over a vocabulary that several ranks share.

  /// Takes each row of logits[n, v], the classes [first, first + v): parts[n, 3] = largest logit, sum of
  /// exp(logit - largest), and the target's logit, 0 where the target is another rank's. A negative target
  /// is none.
  Operation<void(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first)> cross_entropy_parts;
  /// Combines the parts of several ranks, one after the other in parts[ranks * n, 3], into merged[n, 3].
  Operation<void(Sums merged, ConstSums parts, int ranks)> cross_entropy_merge;
  /// logits become their own gradient, weight * (softmax - 1 of the target); loss[1, 1] += weight * sum over
  /// rows of log(sum) + largest - target's logit. Rows without target have no loss, and zeros as gradient.
  Operation<void(InOutMatrix logits, Sums loss, ConstSums merged, Indices targets, std::int64_t first,
                 double weight)>
      cross_entropy_backward;

  // These work on every value alone.

  /// y += x.
  Operation<void(InOutMatrix y, ConstMatrix x)> add;
  /// y = 0.
  Operation<void(Matrix y)> zero_values;
  Operation<void(Sums y)> zero_sums;
  void zero(Matrix y) const { zero_values(y); }
  void zero(Sums y) const { zero_sums(y); }
  /// y = x, in the other precision.
  Operation<void(Matrix y, ConstSums x)> round;
  /// y = x, rounded; x has as many numbers. not_finite[1, 1] becomes positive where one of them is not
  /// finite.
  Operation<void(Matrix y, Sums not_finite, const StoredNumbers& x)> unpack_values;
  /// y = x, rounded.
  Operation<void(Sums y, const StoredNumbers& x)> unpack_sums;
  /// sum[1, 1] += the sum of x^2.
  Operation<void(Sums sum, ConstSums x)> sum_of_squares;
  /// This is AdamW, with decoupled weight decay (Loshchilov and Hutter 2019), of g = gradient * its factor: m
  /// = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, master -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) +
  /// epsilon) + decay master); weight = master, rounded.
  Operation<void(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient, const AdamWStep& step)>
      adamw;

 private:
  DType dtype_;
};

/// Calls f(&Kernels::linear), and so on for every operation, for what is done to all alike.
template <typename F>
void for_each_operation(F f) {
  using K = Kernels;
  const auto call = [&](auto... operations) { (f(operations), ...); };
  call(&K::linear, &K::linear_backward_input, &K::linear_backward_weight);
  call(&K::layer_norm, &K::layer_norm_backward, &K::rms_norm, &K::rms_norm_backward);
  call(&K::gelu, &K::gelu_backward, &K::gelu_erf, &K::gelu_erf_backward);
  call(&K::swiglu, &K::swiglu_backward);
  call(&K::rope, &K::attention, &K::attention_backward);
  call(&K::embedding, &K::embedding_backward);
  call(&K::mix_rows, &K::gather_rows, &K::scatter_add_rows);
  call(&K::scale_columns, &K::column_products);
  call(&K::cross_entropy_parts, &K::cross_entropy_merge, &K::cross_entropy_backward);
  call(&K::add, &K::zero_values, &K::zero_sums, &K::round, &K::unpack_values, &K::unpack_sums);
  call(&K::sum_of_squares, &K::adamw);
}

}  // namespace dflop
