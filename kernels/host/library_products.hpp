// add_linear_layers() adds variants of the linear layers that use a library's matrix product. There is one
// file for each library. A library must compute in the calling thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/kernels.hpp"

namespace dflop::host {

/// A ProductCall describes c[rows, columns] = a b or, with `add`, c += a b. All matrices are stored row after
/// row without gaps. a is [rows, inner], or is stored as [inner, rows] if transposed; likewise b is [inner,
/// columns]. No size is 0.
template <typename T>
struct ProductCall {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  const T* a = nullptr;
  bool transposed_a = false;
  const T* b = nullptr;
  bool transposed_b = false;
  T* c = nullptr;
  bool add = false;

  std::int64_t stride_a() const { return transposed_a ? rows : inner; }
  std::int64_t stride_b() const { return transposed_b ? inner : columns; }
  std::int64_t stride_c() const { return columns; }
};

template <typename T>
using Multiply = void (*)(const ProductCall<T>& call);

template <typename T>
const T* values_of(ConstMatrix matrix) {
  return static_cast<const T*>(matrix.data);
}

/// Calls multiply(), and handles sizes of 0 itself.
template <typename T, Multiply<T> multiply>
void multiply_any(const ProductCall<T>& call) {
  if (call.rows == 0 || call.columns == 0) return;
  if (call.inner > 0) {
    multiply(call);
  } else if (!call.add) {
    std::fill_n(call.c, call.rows * call.columns, T(0));
  }
}

template <typename T, Multiply<T> multiply>
void linear(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  auto* out = static_cast<T*>(y.data);
  const bool biased = bias.columns > 0;  // the product is then added to a copy in every row
  for (std::int64_t row = 0; biased && row < y.rows; ++row) {
    std::copy_n(values_of<T>(bias), y.columns, out + row * y.columns);
  }
  multiply_any<T, multiply>({.rows = y.rows,
                             .columns = y.columns,
                             .inner = x.columns,
                             .a = values_of<T>(x),
                             .b = values_of<T>(weight),
                             .transposed_b = true,
                             .c = out,
                             .add = biased});
}

template <typename T, Multiply<T> multiply>
void linear_backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  multiply_any<T, multiply>({.rows = dx.rows,
                             .columns = dx.columns,
                             .inner = dy.columns,
                             .a = values_of<T>(dy),
                             .b = values_of<T>(weight),
                             .c = static_cast<T*>(dx.data)});
}

template <typename T, Multiply<T> multiply>
void linear_backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x, Beta beta) {
  multiply_any<T, multiply>({.rows = dweight.rows,
                             .columns = dweight.columns,
                             .inner = dy.rows,
                             .a = values_of<T>(dy),
                             .transposed_a = true,
                             .b = values_of<T>(x),
                             .c = static_cast<T*>(dweight.data),
                             .add = beta == Beta::one});
  if (dbias.columns == 0) return;
  auto* sum = static_cast<T*>(dbias.data);
  for (std::int64_t row = 0; row < dy.rows; ++row) {
    const T* gradient = values_of<T>(dy) + row * dy.columns;
    for (std::int64_t column = 0; column < dy.columns; ++column) sum[column] += gradient[column];
  }
}

/// Adds linear layers that use multiply() as variants with the name `name`, a literal.
template <typename T, Multiply<T> multiply>
void add_linear_layers(Kernels& kernels, std::string_view name) {
  kernels.linear.add<linear<T, multiply>>(name);
  kernels.linear_backward_input.add<linear_backward_input<T, multiply>>(name);
  kernels.linear_backward_weight.add<linear_backward_weight<T, multiply>>(name);
}

/// Adds oneDNN's linear layers if its library is installed and the kernels compute in f32.
void add_onednn(Kernels& kernels);
/// Adds OpenBLAS's linear layers if its library is installed.
void add_openblas(Kernels& kernels);

/// Returns "oneDNN 2.6.3"; empty if add_onednn() finds no library.
std::string onednn_version();
/// Returns "OpenBLAS 0.3.21"; empty if add_openblas() finds no library.
std::string openblas_version();

}  // namespace dflop::host
