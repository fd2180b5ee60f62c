#include "kernels/host/bf16.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "kernels/bfloat16.hpp"

namespace dflop {
namespace {

/// A matrix of bf16 in f32. One without data stays so.
class Wide {
 public:
  /// With the matrix's values.
  static Wide of(ConstMatrix matrix) {
    Wide wide(matrix);
    if (matrix.data == nullptr) return wide;
    const auto* from = static_cast<const BFloat16*>(matrix.data);
    std::transform(from, from + matrix.size(), wide.values_.get(), to_float);
    return wide;
  }
  /// For values that are made.
  static Wide room_for(ConstMatrix matrix) { return Wide(matrix); }

  operator Matrix() { return {values_.get(), rows_, columns_}; }             // NOLINT: it is one
  operator ConstMatrix() const { return {values_.get(), rows_, columns_}; }  // NOLINT

  void round_to(Matrix matrix) const {
    if (matrix.data == nullptr) return;
    std::transform(values_.get(), values_.get() + matrix.size(), static_cast<BFloat16*>(matrix.data),
                   to_bfloat16);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};  // at which results have the same bits
  struct Free {
    void operator()(float* values) const { ::operator delete(values, kAlignment); }
  };

  explicit Wide(ConstMatrix matrix) : rows_(matrix.rows), columns_(matrix.columns) {
    if (matrix.data == nullptr) return;
    const auto bytes = static_cast<std::size_t>(matrix.size()) * sizeof(float);
    values_.reset(static_cast<float*>(::operator new(bytes, kAlignment)));
  }

  std::unique_ptr<float[], Free> values_;
  std::int64_t rows_;
  std::int64_t columns_;
};

class Bf16Kernels final : public Kernels {
 public:
  explicit Bf16Kernels(std::unique_ptr<Kernels> wide) : wide_(std::move(wide)) {}
  DType dtype() const override { return DType::bf16; }

  void linear(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) override {
    make(y, [&](Matrix to) { wide_->linear(to, Wide::of(x), Wide::of(weight), Wide::of(bias)); });
  }
  void linear_backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) override {
    make(dx, [&](Matrix to) { wide_->linear_backward_input(to, Wide::of(dy), Wide::of(weight)); });
  }
  void linear_backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x) override {
    wide_->linear_backward_weight(dweight, dbias, Wide::of(dy), Wide::of(x));
  }

  void layer_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, ConstMatrix beta,
                  double epsilon) override {
    make(y, [&](Matrix to) {
      wide_->layer_norm(to, statistics, Wide::of(x), Wide::of(gamma), Wide::of(beta), epsilon);
    });
  }
  void layer_norm_backward(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x,
                           ConstMatrix gamma, ConstSums statistics) override {
    make(dx, [&](Matrix to) {
      wide_->layer_norm_backward(to, dgamma, dbeta, Wide::of(dy), Wide::of(x), Wide::of(gamma), statistics);
    });
  }
  void rms_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, double epsilon) override {
    make(y, [&](Matrix to) { wide_->rms_norm(to, statistics, Wide::of(x), Wide::of(gamma), epsilon); });
  }
  void rms_norm_backward(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                         ConstSums statistics) override {
    make(dx, [&](Matrix to) {
      wide_->rms_norm_backward(to, dgamma, Wide::of(dy), Wide::of(x), Wide::of(gamma), statistics);
    });
  }

  void gelu(Matrix y, ConstMatrix x) override {
    make(y, [&](Matrix to) { wide_->gelu(to, Wide::of(x)); });
  }
  void gelu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) override {
    make(dx, [&](Matrix to) { wide_->gelu_backward(to, Wide::of(dy), Wide::of(x)); });
  }
  void swiglu(Matrix y, ConstMatrix x) override {
    make(y, [&](Matrix to) { wide_->swiglu(to, Wide::of(x)); });
  }
  void swiglu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) override {
    make(dx, [&](Matrix to) { wide_->swiglu_backward(to, Wide::of(dy), Wide::of(x)); });
  }

  void rope(Matrix qkv, const AttentionShape& shape, Indices positions, double base, bool inverse) override {
    change(qkv, [&](Matrix in) { wide_->rope(in, shape, positions, base, inverse); });
  }
  void attention(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
                 Indices offsets) override {
    make(out, [&](Matrix to) { wide_->attention(to, statistics, Wide::of(qkv), shape, offsets); });
  }
  void attention_backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics,
                          ConstMatrix qkv, const AttentionShape& shape, Indices offsets) override {
    make(dqkv, [&](Matrix to) {
      wide_->attention_backward(to, Wide::of(dout), Wide::of(out), statistics, Wide::of(qkv), shape, offsets);
    });
  }

  void embedding(Matrix y, ConstMatrix table, Indices ids, std::int64_t first) override {
    make(y, [&](Matrix to) { wide_->embedding(to, Wide::of(table), ids, first); });
  }
  void embedding_backward(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first) override {
    wide_->embedding_backward(dtable, Wide::of(dy), ids, first);
  }

  void cross_entropy_parts(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first) override {
    wide_->cross_entropy_parts(parts, Wide::of(logits), targets, first);
  }
  void cross_entropy_merge(Sums merged, ConstSums parts, int ranks) override {
    wide_->cross_entropy_merge(merged, parts, ranks);
  }
  void cross_entropy_backward(Matrix logits, Sums loss, ConstSums merged, Indices targets, std::int64_t first,
                              double weight) override {
    change(logits,
           [&](Matrix in) { wide_->cross_entropy_backward(in, loss, merged, targets, first, weight); });
  }

  void pool_rows(Matrix y, ConstMatrix x, Indices begin, Indices end) override {
    make(y, [&](Matrix to) { wide_->pool_rows(to, Wide::of(x), begin, end); });
  }
  void pool_rows_backward(Matrix dx, ConstMatrix dy, Indices begin, Indices end) override {
    change(dx, [&](Matrix in) { wide_->pool_rows_backward(in, Wide::of(dy), begin, end); });
  }
  void gather_rows(Matrix y, ConstMatrix x, Indices index) override {
    make(y, [&](Matrix to) { wide_->gather_rows(to, Wide::of(x), index); });
  }
  void scatter_add_rows(Matrix y, ConstMatrix x, Indices index) override {
    change(y, [&](Matrix in) { wide_->scatter_add_rows(in, Wide::of(x), index); });
  }

  void add(Matrix y, ConstMatrix x) override {
    change(y, [&](Matrix in) { wide_->add(in, Wide::of(x)); });
  }
  void zero(Matrix y) override { std::fill_n(static_cast<BFloat16*>(y.data), y.size(), BFloat16{}); }
  void zero(Sums y) override { wide_->zero(y); }
  void round(Matrix y, ConstSums x) override {
    make(y, [&](Matrix to) { wide_->round(to, x); });
  }
  void scale(Sums y, double factor) override { wide_->scale(y, factor); }
  void adamw(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient, const AdamWStep& step) override {
    make(weight, [&](Matrix to) { wide_->adamw(to, master, m, v, gradient, step); });
  }

 private:
  /// work(matrix) sets all of y.
  template <typename Work>
  static void make(Matrix y, const Work& work) {
    Wide wide = Wide::room_for(y);
    work(wide);
    wide.round_to(y);
  }
  /// work(matrix) reads y, too.
  template <typename Work>
  static void change(Matrix y, const Work& work) {
    Wide wide = Wide::of(y);
    work(wide);
    wide.round_to(y);
  }

  std::unique_ptr<Kernels> wide_;
};

}  // namespace

std::unique_ptr<Kernels> make_bf16_kernels(std::unique_ptr<Kernels> wide) {
  return std::make_unique<Bf16Kernels>(std::move(wide));
}

}  // namespace dflop
