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
void pool_rows(Matrix y, ConstMatrix x, Indices begin, Indices end) {
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < out.rows(); ++i) {
    const Index first = begin.host[static_cast<std::size_t>(i)];
    const Index last = end.host[static_cast<std::size_t>(i)];
    out.row(i) = in.row(first);
    for (Index row = first + 1; row < last; ++row) out.row(i) += in.row(row);
    out.row(i) /= static_cast<T>(last - first);
  }
}

template <typename T>
void pool_rows_backward(Matrix dx, ConstMatrix dy, Indices begin, Indices end) {
  const auto gradient = view<T>(dy);
  auto out = view<T>(dx);
  out.setZero();  // windows may overlap, and leave rows out
  for (Index i = 0; i < gradient.rows(); ++i) {
    const Index first = begin.host[static_cast<std::size_t>(i)];
    const Index last = end.host[static_cast<std::size_t>(i)];
    const T share = T(1) / static_cast<T>(last - first);
    for (Index row = first; row < last; ++row) out.row(row) += share * gradient.row(i);
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

}  // namespace

void set_rows(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.embedding.set<embedding<T>>();
    kernels.embedding_backward.set<embedding_backward<T>>();
    kernels.pool_rows.set<pool_rows<T>>();
    kernels.pool_rows_backward.set<pool_rows_backward<T>>();
    kernels.gather_rows.set<gather_rows<T>>();
    kernels.scatter_add_rows.set<scatter_add_rows<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
