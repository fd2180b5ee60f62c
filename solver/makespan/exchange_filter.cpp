#include "solver/makespan/exchange_filter.hpp"

#include <limits>

namespace dflop {
namespace {

/// A Chunk has one chunk of entries and the query for them.
struct Chunk {
  const Lanes* weight;  // one for each load, `stride` apart
  const Lanes* slope;
  const Lanes* rest;
  const LaneGroups* group;
  std::size_t stride;
  std::size_t loads;
  const float* loss;
  const float* out;
  float offered;
  float least;
  float less_s;
  std::int32_t offer_group;
};

/// Sets `passes` to nonzero for each exchange that is not ruled out. If loads d leave the offer's bin, the
/// path of this bin's group falls by loss * d, and the path of the other bin's group rises by slope * d. If
/// both bins are in one group, its path changes by both.
DFLOP_VECTOR_CLONES void pass(const Chunk& c, LaneGroups& passes) {
  auto fall = Lanes{}.value + c.offered;
  auto other = Lanes{}.value - c.rest->value;
  for (std::size_t l = 0; l < c.loads; ++l) {
    fall -= c.loss[l] * c.weight[l * c.stride].value;
    other += c.out[l] * c.slope[l * c.stride].value;
  }
  const auto same = c.group->value == c.offer_group;
  const auto together = other - fall;
  other = same ? together : other;
  passes.value = (other < c.less_s) & (same | (fall > c.least));
}

}  // namespace

ExchangeFilter::ExchangeFilter(const MakespanState& state)
    : state_(state),
      loads_(state.kernel().loads()),
      items_(state.bin().size()),
      chunks_((items_ + state.bins() + Lanes::kCount - 1) / Lanes::kCount),
      weight_(loads_ * chunks_),
      slope_(loads_ * chunks_),
      rest_(chunks_),
      group_(chunks_, LaneGroups{LaneGroups{}.value - 1}),
      loss_(loads_),
      out_(loads_) {
  for (Lanes& rest : rest_) rest.value -= std::numeric_limits<float>::max();  // padding never passes
  for (std::size_t i = 0; i < items_; ++i) {
    for (std::size_t l = 0; l < loads_; ++l) {
      weight_[l * chunks_ + i / Lanes::kCount].value[i % Lanes::kCount] =
          static_cast<float>(state.item_loads(static_cast<std::int32_t>(i))[l]);
    }
  }
  for (int q = 0; q < state.kernel().groups(); ++q) refresh(q);
}

void ExchangeFilter::refresh(int group) {
  const MakespanKernel& kernel = state_.kernel();
  const std::span<const double> gradient = state_.gradient(group);
  const auto smooth_s = static_cast<float>(state_.smooth_s(group));
  const auto set = [&](std::size_t entry, int bin) {
    const std::size_t chunk = entry / Lanes::kCount;
    const std::size_t lane = entry % Lanes::kCount;
    float rest = -smooth_s;
    for (std::size_t l = 0; l < loads_; ++l) {
      const auto slope = static_cast<float>(gradient[kernel.column(static_cast<int>(l), bin)]);
      slope_[l * chunks_ + chunk].value[lane] = slope;
      rest += slope * weight_[l * chunks_ + chunk].value[lane];
    }
    rest_[chunk].value[lane] = rest;
    group_[chunk].value[lane] = group;
  };
  for (int b = 0; b < state_.bins(); ++b) {
    if (kernel.group(b) != group) continue;
    for (const std::int32_t item : state_.items_of(b)) set(item, b);
    set(items_ + b, b);
  }
}

void ExchangeFilter::offer(std::int32_t from, const Parcel& out) {
  offer_ = {from, -1, out};
  const MakespanKernel& kernel = state_.kernel();
  const std::span<const double> gradient = state_.gradient(kernel.group(from));
  offered_ = 0;
  for (std::size_t l = 0; l < loads_; ++l) {
    loss_[l] = static_cast<float>(gradient[kernel.column(static_cast<int>(l), from)]);
    double sum = 0;
    for (const std::int32_t item : out) sum += item < 0 ? 0.0 : state_.item_loads(item)[l];
    out_[l] = static_cast<float>(sum);
    offered_ += loss_[l] * out_[l];
  }
}

void ExchangeFilter::scan(int chunk, double less_s, std::size_t most, std::vector<BinExchange>& found) const {
  const int group = state_.kernel().group(offer_.from);
  const auto least = static_cast<float>(state_.smooth_s(group) - less_s);
  LaneGroups passes;
  pass({&weight_[chunk], &slope_[chunk], &rest_[chunk], &group_[chunk], chunks_, loads_, loss_.data(),
        out_.data(), offered_, least, static_cast<float>(less_s), group},
       passes);
  for (int z = 0; z < Lanes::kCount && found.size() < most; ++z) {
    if (passes.value[z] == 0) continue;
    const std::size_t entry = static_cast<std::size_t>(chunk) * Lanes::kCount + z;
    BinExchange exchange = offer_;
    exchange.in[0] = entry < items_ ? static_cast<std::int32_t>(entry) : -1;
    exchange.to = entry < items_ ? state_.bin()[entry] : static_cast<std::int32_t>(entry - items_);
    if (exchange.to != exchange.from && state_.allows(exchange)) found.push_back(exchange);
  }
}

}  // namespace dflop
