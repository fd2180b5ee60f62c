#include <array>
#include <cmath>
#include <numeric>

#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

template <typename T>
void add(Matrix y, ConstMatrix x) {
  flat<T>(y) += flat<T>(x);
}

template <typename T>
void zero_values(Matrix y) {
  flat<T>(y).setZero();
}

template <typename T>
void zero_sums(Sums y) {
  flat<T>(y).setZero();
}

template <typename T>
void round(Matrix y, ConstSums x) {
  flat<T>(y) = flat<T>(x);  // sums and values have the same precision here
}

/// Sums in f64, because a model has more values than f32 has digits for. Separate lanes let compilers use
/// vectors; Eigen would reduce an array of another type value by value, four times as slowly.
template <typename T>
void sum_of_squares(Sums sum, ConstSums x) {
  constexpr Index kLanes = 16;
  const auto in = flat<T>(x);
  const T* const values = in.data();
  std::array<double, kLanes> lanes{};
  Index i = 0;
  for (; i + kLanes <= in.size(); i += kLanes) {
    for (Index lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  double squares = std::accumulate(lanes.begin(), lanes.end(), 0.0);
  for (; i < in.size(); ++i) squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  flat<T>(sum)(0) += static_cast<T>(squares);
}

template <typename T>
void adamw(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient, const AdamWStep& step) {
  const auto power = static_cast<double>(step.step);
  const T m_scale = static_cast<T>(1.0 / (1.0 - std::pow(step.beta1, power)));
  const T v_scale = static_cast<T>(1.0 / (1.0 - std::pow(step.beta2, power)));
  const T rate = static_cast<T>(step.learning_rate);
  const T kept = static_cast<T>(1.0 - step.learning_rate * step.weight_decay);
  const auto b1 = static_cast<T>(step.beta1);
  const auto b2 = static_cast<T>(step.beta2);
  const auto epsilon = static_cast<T>(step.epsilon);
  const auto factor = static_cast<T>(step.gradient_factor);
  for_each_chunk(weight.size(), [&](Index first, Index count) {
    const auto g = flat<T>(gradient).segment(first, count) * factor;
    auto mean = flat<T>(m).segment(first, count);
    auto square = flat<T>(v).segment(first, count);
    auto value = flat<T>(master).segment(first, count);
    mean = b1 * mean + (T(1) - b1) * g;
    square = b2 * square + (T(1) - b2) * g.square();
    value = kept * value - rate * (mean * m_scale / ((square * v_scale).sqrt() + epsilon));
    flat<T>(weight).segment(first, count) = value;
  });
}

}  // namespace

void set_elementwise(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.add.set<add<T>>();
    kernels.zero_values.set<zero_values<T>>();
    kernels.zero_sums.set<zero_sums<T>>();
    kernels.round.set<round<T>>();
    kernels.sum_of_squares.set<sum_of_squares<T>>();
    kernels.adamw.set<adamw<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
