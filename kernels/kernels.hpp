// Kernels compute a training step on one device, operation by operation. The host's kernels are the
// reference: tests compare the kernels of other devices with them. kernels/README.md says how to add an
// operation.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/operation.hpp"
#include "kernels/stored_numbers.hpp"

namespace dflop {

/// An AttentionShape describes attention over packed sequences: sequence i has the rows [offsets[i],
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

/// Returns the KernelCall of attention or its backward over `tokens` tokens. `pairs` is the sum of the
/// squared sequence lengths, as Workload counts it. The precision is not set.
KernelCall attention_call(KernelOperation operation, const AttentionShape& shape, std::int64_t tokens,
                          std::int64_t pairs);

/// An AdamWStep holds the parameters of one optimizer step.
struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  std::int64_t step = 1;       ///< number of the step, from 1 on
  double gradient_factor = 1;  ///< multiplies gradients when they are used; their memory stays unchanged
};

/// A Beta is the factor of a product's old result, which is added to the new one, as in BLAS. With zero, the
/// old result is not read.
enum class Beta : std::uint8_t { zero, one };

/// Kernels are the operations of one rank. They run in order on its compute stream, and a call may return
/// before its work is done. They are not thread-safe. Outputs must not overlap inputs unless a comment says
/// so. Matrices may have no rows.
class Kernels {
 public:
  explicit Kernels(DType dtype);
  virtual ~Kernels() = default;
  DType dtype() const { return dtype_; }

  /// Lets a guide choose between variants from now on; with null, calls use the first variant again. The
  /// guide must outlive this object.
  virtual void guide(KernelGuide* guide);
  /// Returns the variants from which a guide chooses.
  virtual VariantNames variant_names() const;

  // Linear layers

  /// y[n, out] = x[n, in] * weight[out, in]^T + bias[1, out]. A bias without columns is not added.
  Operation<void(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias)> linear;
  /// dx[n, in] = dy[n, out] * weight[out, in].
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix weight)> linear_backward_input;
  /// dweight[out, in] = beta * dweight + dy^T * x; dbias[1, out] += column sums of dy, unless dbias has no
  /// columns.
  Operation<void(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x, Beta beta)> linear_backward_weight;

  // Norms

  /// x += added, rounded like the operation `add`; then y = (x - mean) * rstd * gamma + beta for each row,
  /// with rstd = 1 / sqrt(variance + epsilon). statistics[n, 2] receives mean and rstd. gamma, beta: [1,
  /// columns]. If `added` has no data, x stays unchanged.
  Operation<void(Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added, ConstMatrix gamma,
                 ConstMatrix beta, double epsilon)>
      layer_norm;
  /// dx = (gradient of layer_norm) + added, rounded once. The gradients of gamma and beta are added to dgamma
  /// and dbeta. dgamma and dbeta are left out if they have no columns, dx and `added` if they have no data.
  Operation<void(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                 ConstSums statistics, ConstMatrix added)>
      layer_norm_backward;
  /// x += added, rounded like the operation `add`; then y = x * rstd * gamma for each row, with rstd = 1 /
  /// sqrt(mean of x^2 + epsilon). statistics[n, 1] receives rstd. If `added` has no data, x stays unchanged.
  Operation<void(Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added, ConstMatrix gamma,
                 double epsilon)>
      rms_norm;
  /// dx = (gradient of rms_norm) + added, rounded once. The gradient of gamma is added to dgamma. dgamma is
  /// left out if it has no columns, dx and `added` if they have no data.
  Operation<void(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                 ConstSums statistics, ConstMatrix added)>
      rms_norm_backward;

  // Activations

  /// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
  Operation<void(Matrix y, ConstMatrix x)> gelu;
  /// dx = dy * the derivative of gelu at x.
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix x)> gelu_backward;
  /// y = x / 2 * (1 + erf(x / sqrt(2))).
  Operation<void(Matrix y, ConstMatrix x)> gelu_erf;
  /// dx = dy * the derivative of gelu_erf at x.
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix x)> gelu_erf_backward;
  /// y = x sigmoid(1.702 x).
  Operation<void(Matrix y, ConstMatrix x)> gelu_quick;
  /// dx = dy * the derivative of gelu_quick at x.
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix x)> gelu_quick_backward;
  /// y[n, f] = silu(gate) * up, where x[n, 2 f] = [gate | up] and silu(g) = g / (1 + exp(-g)).
  Operation<void(Matrix y, ConstMatrix x)> swiglu;
  /// dx[n, 2 f] = the gradient of swiglu at x for the output gradient dy[n, f].
  Operation<void(Matrix dx, ConstMatrix dy, ConstMatrix x)> swiglu_backward;

  // Attention

  /// Rotates queries and keys of a packed projection in place (rotary positions). For each head in row r, the
  /// pair of columns (i, i + head_dim / 2) is rotated by the angle with cosine turns[rows[r], i] and sine
  /// turns[rows[r], i + head_dim / 2]. `inverse` rotates back, which is the gradient.
  Operation<void(InOutMatrix qkv, const AttentionShape& shape, Indices rows, ConstSums turns, bool inverse)>
      rope;
  /// out[n, heads * head_dim] = softmax(q k^T / sqrt(head_dim)) v within each sequence; query head h uses key
  /// head h / (heads / kv_heads). statistics[n, heads] receives the logarithm of each row's sum of
  /// exponentials.
  Operation<void(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets)>
      attention;
  /// dqkv is the gradient of attention for the output gradient dout. `out` and `statistics` come from the
  /// forward.
  Operation<void(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                 const AttentionShape& shape, Indices offsets)>
      attention_backward;

  // Operations on rows

  /// y[i] = table[ids[i] - first] if that is a row of the table, else zeros. The table may be one rank's part
  /// of the vocabulary.
  Operation<void(Matrix y, ConstMatrix table, Indices ids, std::int64_t first)> embedding;
  /// dtable[ids[i] - first] += dy[i].
  Operation<void(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first)> embedding_backward;
  /// y[i] = the sum of weights[1, k] * x[index[k]] over k in [begin[i], end[i]); zeros if there is no k. For
  /// its gradient, use mix_rows with the transposed lists.
  Operation<void(Matrix y, ConstMatrix x, Indices begin, Indices end, Indices index, ConstSums weights)>
      mix_rows;
  /// y[i] = x[index[i]].
  Operation<void(Matrix y, ConstMatrix x, Indices index)> gather_rows;
  /// y[index[i]] += x[i]; an index may repeat.
  Operation<void(InOutMatrix y, ConstMatrix x, Indices index)> scatter_add_rows;

  // Operations on columns

  /// y = x * scale[1, columns] for each row.
  Operation<void(Matrix y, ConstMatrix x, ConstMatrix scale)> scale_columns;
  /// sum[1, columns] += column sums of a * b.
  Operation<void(Sums sum, ConstMatrix a, ConstMatrix b)> column_products;

  // The loss: cross entropy over a vocabulary that is split over several ranks

  /// logits[n, v] are the logits of the classes [first, first + v). For each row, parts[n, 3] receives the
  /// largest logit, the sum of exp(logit - largest), and the target's logit, or 0 if a different rank has the
  /// target. A row with a negative target has no target.
  Operation<void(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first)> cross_entropy_parts;
  /// Merges the results of cross_entropy_parts on several ranks, stored one after the other in parts[ranks *
  /// n, 3], into merged[n, 3].
  Operation<void(Sums merged, ConstSums parts, int ranks)> cross_entropy_merge;
  /// Replaces logits by their gradient, weight * (softmax - one-hot target). loss[1, 1] += weight * sum over
  /// rows of (log(sum) + largest - target's logit). Rows without a target have no loss and a zero gradient.
  Operation<void(InOutMatrix logits, Sums loss, ConstSums merged, Indices targets, std::int64_t first,
                 double weight)>
      cross_entropy_backward;

  // Operations on single values

  /// y += x.
  Operation<void(InOutMatrix y, ConstMatrix x)> add;
  /// y = 0.
  Operation<void(Matrix y)> zero_values;
  Operation<void(Sums y)> zero_sums;
  void zero(Matrix y) const { zero_values(y); }
  void zero(Sums y) const { zero_sums(y); }
  /// y = x, rounded to the precision of values.
  Operation<void(Matrix y, ConstSums x)> round;
  /// y = x, rounded to the precision of values; x has as many numbers as y. not_finite[1, 1] becomes positive
  /// if a number is not finite.
  Operation<void(Matrix y, Sums not_finite, const StoredNumbers& x)> unpack_values;
  /// y = x, rounded to the precision of sums; x has as many numbers as y.
  Operation<void(Sums y, const StoredNumbers& x)> unpack_sums;
  /// sum[1, 1] += the sum of x^2.
  Operation<void(Sums sum, ConstSums x)> sum_of_squares;
  /// AdamW with decoupled weight decay (Loshchilov and Hutter 2019), for g = gradient * gradient_factor: m =
  /// b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, master -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) +
  /// epsilon) + decay master); weight = master, rounded.
  Operation<void(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient, const AdamWStep& step)>
      adamw;

 private:
  DType dtype_;
};

/// Calls f(&Kernels::linear) and so on for every operation.
template <typename F>
void for_each_operation(F f) {
  using K = Kernels;
  const auto call = [&](auto... operations) { (f(operations), ...); };
  call(&K::linear, &K::linear_backward_input, &K::linear_backward_weight);
  call(&K::layer_norm, &K::layer_norm_backward, &K::rms_norm, &K::rms_norm_backward);
  call(&K::gelu, &K::gelu_backward, &K::gelu_erf, &K::gelu_erf_backward);
  call(&K::gelu_quick, &K::gelu_quick_backward, &K::swiglu, &K::swiglu_backward);
  call(&K::rope, &K::attention, &K::attention_backward);
  call(&K::embedding, &K::embedding_backward);
  call(&K::mix_rows, &K::gather_rows, &K::scatter_add_rows);
  call(&K::scale_columns, &K::column_products);
  call(&K::cross_entropy_parts, &K::cross_entropy_merge, &K::cross_entropy_backward);
  call(&K::add, &K::zero_values, &K::zero_sums, &K::round, &K::unpack_values, &K::unpack_sums);
  call(&K::sum_of_squares, &K::adamw);
}

}  // namespace dflop
