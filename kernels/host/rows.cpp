#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

template <typename T>
void embedding(Matrix y, ConstMatrix table, Indices ids, std::int64_t first) {
  const auto rows = view<T>(table);
  auto out = view<T>(y);
  for (Index i = 0; i < out.rows(); ++i) {
    const Index row = ids.host[static_cast<std::size_t>(i)] - first;
    if (row >= 0 && row < rows.rows()) {
      out.row(i) = rows.row(row);
    } else {
      out.row(i).setZero();
    }
  }
}

template <typename T>
void embedding_backward(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first) {
  auto rows = view<T>(dtable);
  const auto gradient = view<T>(dy);
  for (Index i = 0; i < gradient.rows(); ++i) {
    const Index row = ids.host[static_cast<std::size_t>(i)] - first;
    if (row >= 0 && row < rows.rows()) rows.row(row) += gradient.row(i);
  }
}

template <typename T>
void mix_rows(Matrix y, ConstMatrix x, Indices begin, Indices end, Indices index, ConstSums weights) {
  const auto in = view<T>(x);
  const auto weight = flat<T>(weights);
  auto out = view<T>(y);
  for (Index i = 0; i < out.rows(); ++i) {
    const Index last = end.host[static_cast<std::size_t>(i)];
    Index tap = begin.host[static_cast<std::size_t>(i)];
    if (tap == last) {
      out.row(i).setZero();
      continue;
    }
    out.row(i) = weight(tap) * in.row(index.host[static_cast<std::size_t>(tap)]);
    for (++tap; tap < last; ++tap) {
      out.row(i) += weight(tap) * in.row(index.host[static_cast<std::size_t>(tap)]);
    }
  }
}

template <typename T>
void gather_rows(Matrix y, ConstMatrix x, Indices index) {
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < out.rows(); ++i) out.row(i) = in.row(index.host[static_cast<std::size_t>(i)]);
}

template <typename T>
void scatter_add_rows(Matrix y, ConstMatrix x, Indices index) {
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < in.rows(); ++i) out.row(index.host[static_cast<std::size_t>(i)]) += in.row(i);
}

template <typename T>
void scale_columns(Matrix y, ConstMatrix x, ConstMatrix scale) {
  view<T>(y).array() = view<T>(x).array().rowwise() * flat<T>(scale);
}

template <typename T>
void column_products(Sums sum, ConstMatrix a, ConstMatrix b) {
  const auto left = view<T>(a).array();
  const auto right = view<T>(b).array();
  for (Index row = 0; row < left.rows(); ++row) flat<T>(sum) += left.row(row) * right.row(row);
}

}  // namespace

void set_rows(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.embedding.set<embedding<T>>();
    kernels.embedding_backward.set<embedding_backward<T>>();
    kernels.mix_rows.set<mix_rows<T>>();
    kernels.gather_rows.set<gather_rows<T>>();
    kernels.scatter_add_rows.set<scatter_add_rows<T>>();
    kernels.scale_columns.set<scale_columns<T>>();
    kernels.column_products.set<column_products<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
