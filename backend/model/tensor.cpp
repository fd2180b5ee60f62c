#include "backend/model/tensor.hpp"

#include <algorithm>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace dflop {

std::unique_ptr<Buffer> allocate_values(const RankContext& rank, std::int64_t count, std::size_t bytes) {
  if (count == 0) return nullptr;
  return rank.device.allocate(static_cast<std::size_t>(count) * bytes);
}

IndexTensor::IndexTensor(const RankContext& rank, std::vector<std::int32_t> numbers)
    : host_(std::move(numbers)), buffer_(allocate_values(rank, size(), sizeof(std::int32_t))) {
  if (buffer_)
    rank.compute.copy_to_device(buffer_->data(), host_.data(), host_.size() * sizeof(std::int32_t));
}

namespace {

/// dtype_of is the DType of a host type.
template <std::floating_point Value>
constexpr DType dtype_of = std::is_same_v<Value, float> ? DType::f32 : DType::f64;

void zero_rows_from(const RankContext& rank, Tensor& tensor, std::int64_t first) {
  if (first < tensor.rows()) rank.kernels.zero(rows_of(rank, Matrix(tensor), first, tensor.rows() - first));
}

}  // namespace

template <std::floating_point From>
void upload(const RankContext& rank, void* data, DType element, std::span<const From> values) {
  if (values.empty()) return;
  const std::size_t bytes = values.size() * bytes_of(element);
  if (element == dtype_of<From>) return rank.compute.copy_to_device(data, values.data(), bytes);
  const auto converted = std::make_unique_for_overwrite<std::byte[]>(bytes);
  convert(values, element, converted.get());
  rank.compute.copy_to_device(data, converted.get(), bytes);
}

template void upload(const RankContext&, void*, DType, std::span<const float>);
template void upload(const RankContext&, void*, DType, std::span<const double>);

void upload(const RankContext& rank, void* data, const HostValues& values, std::int64_t begin,
            std::int64_t count) {
  if (count == 0) return;
  const HostValues own = values.as(rank.kernels.dtype());
  const auto bytes = static_cast<std::int64_t>(bytes_of(own.dtype()));
  rank.compute.copy_to_device(data, own.data() + begin * bytes, static_cast<std::size_t>(count * bytes));
}

template <std::floating_point To>
void download(const RankContext& rank, const void* data, DType element, std::span<To> out) {
  if (out.empty()) return;
  with_zero_of(element, [&](auto zero) {
    using From = decltype(zero);
    if constexpr (std::is_same_v<From, To>) {
      rank.compute.copy_to_host(out.data(), data, out.size_bytes());
      rank.compute.synchronize();
    } else {
      std::vector<From> values(out.size());
      rank.compute.copy_to_host(values.data(), data, values.size() * sizeof(From));
      rank.compute.synchronize();
      std::transform(values.begin(), values.end(), out.begin(), convert_value<To, From>);
    }
  });
}

template void download(const RankContext&, const void*, DType, std::span<float>);
template void download(const RankContext&, const void*, DType, std::span<double>);

std::vector<double> download(const RankContext& rank, const void* data, DType element, std::size_t count) {
  std::vector<double> values(count);
  download(rank, data, element, std::span(values));
  return values;
}

bool has_shards(const RankContext& rank) {
  return rank.sequence_parallel && rank.tp_size() > 1;
}

std::int64_t held_rows(const RankContext& rank, std::int64_t rows) {
  return has_shards(rank) ? round_up(rows, rank.tp_size()) / rank.tp_size() : rows;
}

AllRows::AllRows(const RankContext& rank, const Tensor& held, std::int64_t rows, const char* what)
    : all_(held) {
  if (!has_shards(rank) || held.empty()) return;
  gathered_ = Tensor(rank, rank.tp_size() * held.rows(), held.columns());
  rank.communicator.all_gather(gathered_.view().data, held.view().data,
                               static_cast<std::size_t>(held.view().size()), rank.kernels.dtype(), rank.tp,
                               rank.compute, what);
  all_ = rows_of(rank, std::as_const(gathered_).view(), 0, rows);
}

Tensor tp_summand(const RankContext& rank, std::int64_t rows, std::int64_t columns) {
  const std::int64_t shards = has_shards(rank) ? rank.tp_size() : 1;
  Tensor summand(rank, shards * held_rows(rank, rows), columns);
  zero_rows_from(rank, summand, rows);
  return summand;
}

Tensor tp_shard_sum(const RankContext& rank, Tensor summand, const char* what) {
  if (!has_shards(rank)) {
    tp_sum(rank, summand, what);
    return summand;
  }
  Tensor sum(rank, summand.rows() / rank.tp_size(), summand.columns());
  if (sum.empty()) return sum;
  rank.communicator.reduce_scatter(sum.view().data, std::as_const(summand).view().data,
                                   static_cast<std::size_t>(sum.view().size()), rank.kernels.dtype(), rank.tp,
                                   rank.compute, what);
  return sum;
}

void tp_sum(const RankContext& rank, Matrix matrix, const char* what) {
  if (rank.tp_size() == 1 || matrix.size() == 0) return;
  rank.communicator.all_reduce(matrix.data, static_cast<std::size_t>(matrix.size()), rank.kernels.dtype(),
                               rank.tp, rank.compute, what);
}

}  // namespace dflop
