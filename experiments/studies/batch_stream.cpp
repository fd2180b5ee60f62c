#include "experiments/studies/batch_stream.hpp"

#include <numeric>
#include <span>
#include <utility>

namespace dflop {
namespace {

/// Batches are drawn from this random stream of the seed. Schedulers and planners derive their own from seed
/// and iteration.
constexpr std::uint64_t kBatchStream = 0x62617463;

}  // namespace

BatchStream::BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed)
    : samples_(std::move(samples)),
      gbs_(gbs),
      random_(seed, kBatchStream),
      order_(samples_->size()),
      next_(order_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
}

const Sample& BatchStream::next_sample() {
  if (next_ == order_.size()) {
    random_.shuffle(std::span(order_));
    next_ = 0;
  }
  return (*samples_)[static_cast<std::size_t>(order_[next_++])];
}

Batch BatchStream::next() {
  Batch batch;
  batch.reserve(static_cast<std::size_t>(gbs_));
  for (std::int64_t i = 0; i < gbs_; ++i) batch.push_back(next_sample());
  return batch;
}

void BatchStream::skip(std::int64_t batches) {
  for (std::int64_t i = 0; i < batches * gbs_; ++i) next_sample();
}

}  // namespace dflop
