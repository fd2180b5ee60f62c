#include "backend/model/stored_upload.hpp"

#include <algorithm>
#include <iterator>

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
constexpr std::size_t kGatheredBelow = kBytesAtOnce / 16;  // longer runs are copied to the device directly
constexpr std::int64_t kPartsAtOnce = 1024;

}  // namespace

StoredUpload::StoredUpload(const RankContext& rank) : rank_(rank), not_finite_(rank, 1, kPartsAtOnce) {
  if (!rank.device.is_synchronous()) on_device_ = rank.device.allocate(kBytesAtOnce);
  gathered_.reserve(kBytesAtOnce);
  rank.kernels.zero(Sums(not_finite_));
}

/// Switches to a run's tensor and type.
void StoredUpload::enter_part(const StoredRun& run) {
  const bool is_known =
      !parts_.empty() && parts_.back().tensor == run.tensor && parts_.back().file == run.file;
  if (is_known && type_ == run.numbers.type) return;
  flush();
  type_ = run.numbers.type;
  if (is_known) return;
  if (std::ssize(parts_) == kPartsAtOnce) require_finite();
  parts_.push_back({std::string(run.tensor), std::string(run.file)});
}

void StoredUpload::add(const StoredRun& run, std::int64_t from, std::int64_t count, std::int64_t place) {
  enter_part(run);
  const std::size_t width = bytes_of(type_);
  const auto most = static_cast<std::int64_t>(kBytesAtOnce / width);
  const auto bytes = [&](std::int64_t numbers) { return static_cast<std::size_t>(numbers) * width; };
  const auto* numbers = static_cast<const std::byte*>(run.numbers.data) + bytes(from);
  if (bytes(count) >= kGatheredBelow) {
    flush();
    for (std::int64_t done = 0; done < count; done += most) {
      send(numbers + bytes(done), place + done, std::min(most, count - done));
    }
    return;
  }
  if (place + count - first_ > most) flush();
  if (gathered_.empty()) first_ = place;
  gathered_.resize(bytes(place - first_), std::byte{0});
  gathered_.insert(gathered_.end(), numbers, numbers + bytes(count));
}

void StoredUpload::flush() {
  if (gathered_.empty()) return;
  send(gathered_.data(), first_, static_cast<std::int64_t>(gathered_.size() / bytes_of(type_)));
  gathered_.clear();
}

void StoredUpload::send(const void* numbers, std::int64_t place, std::int64_t count) {
  if (on_device_ != nullptr) {
    rank_.compute.copy_to_device(on_device_->data(), numbers,
                                 static_cast<std::size_t>(count) * bytes_of(type_));
    numbers = on_device_->data();
  }
  const std::size_t flag = (parts_.size() - 1) * sum_bytes_of(rank_.kernels.dtype());
  unpack_(place, {type_, numbers, count}, Sums{offset(not_finite_.view().data, flag), 1, 1});
}

void StoredUpload::require_finite() {
  const std::vector<double> found =
      download(rank_, not_finite_.view().data, sum_type_of(rank_.kernels.dtype()), parts_.size());
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (found[p] == 0) continue;
    refuse_input(parts_[p].file, "tensor '{}': expected finite numbers, found NaN or infinity",
                 parts_[p].tensor);
  }
  rank_.kernels.zero(Sums(not_finite_));
  parts_.clear();
}

}  // namespace dflop
