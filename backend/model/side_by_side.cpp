#include "backend/model/side_by_side.hpp"

#include <cstdint>
#include <utility>

namespace dflop {
namespace {

/// Returns the places of part `which` among the rows of all parts.
IndexTensor places_of(const RankContext& rank, std::int64_t rows, std::int64_t parts, std::int64_t which) {
  std::vector<std::int32_t> places;
  places.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row)
    places.push_back(static_cast<std::int32_t>(row * parts + which));
  return {rank, std::move(places)};
}

}  // namespace

Tensor side_by_side(const RankContext& rank, const std::vector<Tensor>& parts) {
  const std::int64_t rows = parts.front().rows();
  const std::int64_t columns = parts.front().columns();
  const auto count = static_cast<std::int64_t>(parts.size());
  Tensor all(rank, rows, count * columns);
  const Matrix blocks{all.view().data, count * rows, columns};
  rank.kernels.zero(blocks);
  for (std::int64_t p = 0; p < count; ++p)
    rank.kernels.scatter_add_rows(blocks, parts[static_cast<std::size_t>(p)],
                                  places_of(rank, rows, count, p));
  return all;
}

std::vector<Tensor> taken_apart(const RankContext& rank, const Tensor& all, int parts) {
  const ConstMatrix blocks{all.view().data, parts * all.rows(), all.columns() / parts};
  std::vector<Tensor> apart;
  for (int p = 0; p < parts; ++p) {
    apart.emplace_back(rank, all.rows(), blocks.columns);
    rank.kernels.gather_rows(apart.back(), blocks, places_of(rank, all.rows(), parts, p));
  }
  return apart;
}

Tensor copy_of(const RankContext& rank, const Tensor& tensor) {
  Tensor copy(rank, tensor.rows(), tensor.columns());
  rank.kernels.zero(Matrix(copy));
  rank.kernels.add(copy, tensor);
  return copy;
}

}  // namespace dflop
