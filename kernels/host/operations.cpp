// All operations of one target behind the interface.
#include "kernels/host/activation.hpp"
#include "kernels/host/attention.hpp"
#include "kernels/host/cross_entropy.hpp"
#include "kernels/host/embedding.hpp"
#include "kernels/host/linear.hpp"
#include "kernels/host/norm.hpp"
#include "kernels/host/optimizer.hpp"
#include "kernels/host/rope.hpp"
#include "kernels/host/rows.hpp"
#include "kernels/host/target.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

/// Values and sums are T. The operations lie in files by theme.
template <typename T>
class HostKernels final : public Kernels {
 public:
  explicit HostKernels(DType dtype) : dtype_(dtype) {}
  DType dtype() const override { return dtype_; }

  void linear(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) override {
    HostLinear<T>::forward(y, x, weight, bias);
  }
  void linear_backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) override {
    HostLinear<T>::backward_input(dx, dy, weight);
  }
  void linear_backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x) override {
    HostLinear<T>::backward_weight(dweight, dbias, dy, x);
  }

  void layer_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, ConstMatrix beta,
                  double epsilon) override {
    HostNorm<T>::layer_norm(y, statistics, x, gamma, beta, epsilon);
  }
  void layer_norm_backward(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x,
                           ConstMatrix gamma, ConstSums statistics) override {
    HostNorm<T>::layer_norm_backward(dx, dgamma, dbeta, dy, x, gamma, statistics);
  }
  void rms_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, double epsilon) override {
    HostNorm<T>::rms_norm(y, statistics, x, gamma, epsilon);
  }
  void rms_norm_backward(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                         ConstSums statistics) override {
    HostNorm<T>::rms_norm_backward(dx, dgamma, dy, x, gamma, statistics);
  }

  void gelu(Matrix y, ConstMatrix x) override { HostActivation<T>::gelu(y, x); }
  void gelu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) override {
    HostActivation<T>::gelu_backward(dx, dy, x);
  }
  void swiglu(Matrix y, ConstMatrix x) override { HostActivation<T>::swiglu(y, x); }
  void swiglu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) override {
    HostActivation<T>::swiglu_backward(dx, dy, x);
  }

  void rope(Matrix qkv, const AttentionShape& shape, Indices positions, double base, bool inverse) override {
    HostRope<T>::rope(qkv, shape, positions, base, inverse);
  }
  void attention(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
                 Indices offsets) override {
    HostAttention<T>::forward(out, statistics, qkv, shape, offsets);
  }
  void attention_backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics,
                          ConstMatrix qkv, const AttentionShape& shape, Indices offsets) override {
    HostAttention<T>::backward(dqkv, dout, out, statistics, qkv, shape, offsets);
  }

  void embedding(Matrix y, ConstMatrix table, Indices ids, std::int64_t first) override {
    HostEmbedding<T>::forward(y, table, ids, first);
  }
  void embedding_backward(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first) override {
    HostEmbedding<T>::backward(dtable, dy, ids, first);
  }

  void cross_entropy_parts(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first) override {
    HostCrossEntropy<T>::parts(parts, logits, targets, first);
  }
  void cross_entropy_merge(Sums merged, ConstSums parts, int ranks) override {
    HostCrossEntropy<T>::merge(merged, parts, ranks);
  }
  void cross_entropy_backward(Matrix logits, Sums loss, ConstSums merged, Indices targets, std::int64_t first,
                              double weight) override {
    HostCrossEntropy<T>::backward(logits, loss, merged, targets, first, weight);
  }

  void pool_rows(Matrix y, ConstMatrix x, Indices begin, Indices end) override {
    HostRows<T>::pool(y, x, begin, end);
  }
  void pool_rows_backward(Matrix dx, ConstMatrix dy, Indices begin, Indices end) override {
    HostRows<T>::pool_backward(dx, dy, begin, end);
  }
  void gather_rows(Matrix y, ConstMatrix x, Indices index) override { HostRows<T>::gather(y, x, index); }
  void scatter_add_rows(Matrix y, ConstMatrix x, Indices index) override {
    HostRows<T>::scatter_add(y, x, index);
  }
  void add(Matrix y, ConstMatrix x) override { HostRows<T>::add(y, x); }
  void zero(Matrix y) override { HostRows<T>::zero(y); }
  void zero(Sums y) override { HostRows<T>::zero(y); }
  void round(Matrix y, ConstSums x) override { HostRows<T>::round(y, x); }
  void scale(Sums y, double factor) override { HostRows<T>::scale(y, factor); }

  void adamw(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient, const AdamWStep& step) override {
    HostOptimizer<T>::adamw(weight, master, m, v, gradient, step);
  }

 private:
  DType dtype_;
};

}  // namespace

Kernels* new_kernels(DType dtype) {
  if (dtype == DType::f64) return new HostKernels<double>(dtype);
  return new HostKernels<float>(dtype);
}

}  // namespace dflop::DFLOP_HOST_TARGET
