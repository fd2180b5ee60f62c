#include "backend/host/sums.hpp"

#include <algorithm>
#include <array>

#include "kernels/dtype.hpp"

namespace dflop {
namespace {

/// How an element's values are added: as float, double, or float in bfloat16's place.
template <typename Value>
struct Adding {
  using Sum = Value;
  static Sum widen(Value value) { return value; }
  static Value narrow(Sum sum) { return sum; }
};
template <>
struct Adding<BFloat16> {
  using Sum = float;
  static Sum widen(BFloat16 value) { return to_float(value); }
  static BFloat16 narrow(Sum sum) { return to_bfloat16(sum); }
};

constexpr std::size_t kBlock = 1024;  // sums at a time, which stay in the first cache

template <typename Value>
void add_block(const HostSum& sum, std::size_t begin, std::size_t count) {
  using A = Adding<Value>;
  std::array<typename A::Sum, kBlock> sums;
  const auto* first = static_cast<const Value*>(sum.inputs.front()) + begin;
  std::transform(first, first + count, sums.begin(), A::widen);
  for (std::size_t k = 1; k < sum.inputs.size(); ++k) {
    const auto* input = static_cast<const Value*>(sum.inputs[k]) + begin;
    for (std::size_t i = 0; i < count; ++i) sums[i] += A::widen(input[i]);
  }
  for (void* output : sum.outputs) {
    std::transform(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count),
                   static_cast<Value*>(output) + begin, A::narrow);
  }
}

template <typename Value>
void add_blocks(const HostSum& sum, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; i += kBlock) add_block<Value>(sum, i, std::min(kBlock, end - i));
}

}  // namespace

void add_up(const HostSum& sum, std::size_t begin, std::size_t end) {
  switch (sum.element) {
    case Element::f32:
      return add_blocks<float>(sum, begin, end);
    case Element::f64:
      return add_blocks<double>(sum, begin, end);
    case Element::bf16:
      return add_blocks<BFloat16>(sum, begin, end);
  }
}

}  // namespace dflop
