#include "kernels/host/embedding.hpp"

#include "kernels/host/matrix.hpp"
#include "kernels/operation_checks.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
void HostEmbedding<T>::forward(Matrix y, ConstMatrix table, Indices ids, std::int64_t first) {
  check_embedding(y, table, ids);
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
void HostEmbedding<T>::backward(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first) {
  check_embedding_backward(dtable, dy, ids);
  auto rows = view<T>(dtable);
  const auto gradient = view<T>(dy);
  for (Index i = 0; i < gradient.rows(); ++i) {
    const Index row = ids.host[static_cast<std::size_t>(i)] - first;
    if (row >= 0 && row < rows.rows()) rows.row(row) += gradient.row(i);
  }
}

template struct HostEmbedding<float>;
template struct HostEmbedding<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
