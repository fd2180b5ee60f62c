// Helpers for kernel tests: matrices that own their memory, random matrices, and numerical derivatives.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/support/random.hpp"
#include "kernels/host/host_kernels.hpp"

namespace dflop::testing {

/// A rows x columns matrix on the host; converts to values and to sums.
template <typename T>
struct Values {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<T> data;

  Values() = default;
  Values(std::int64_t r, std::int64_t c, T fill = T(0))
      : rows(r), columns(c), data(static_cast<std::size_t>(r * c), fill) {}
  Values(std::int64_t r, std::int64_t c, std::vector<T> d) : rows(r), columns(c), data(std::move(d)) {}

  T& operator()(std::int64_t row, std::int64_t column) {
    return data[static_cast<std::size_t>(row * columns + column)];
  }
  const T& operator()(std::int64_t row, std::int64_t column) const {
    return data[static_cast<std::size_t>(row * columns + column)];
  }
  operator Matrix() { return {data.data(), rows, columns}; }
  operator ConstMatrix() const { return {data.data(), rows, columns}; }
  operator Sums() { return {data.data(), rows, columns}; }
  operator ConstSums() const { return {data.data(), rows, columns}; }
};
using Reals = Values<double>;
using Ints = std::vector<std::int32_t>;

template <typename T>
std::unique_ptr<Kernels> host(HostTarget target = fastest_host_target()) {
  return make_host_kernels(sizeof(T) == 4 ? DType::f32 : DType::f64, target);
}

inline Indices indices(const Ints& numbers) {
  return {numbers, numbers.data()};
}

/// Uniform random values in [-size, size), the same numbers in both precisions.
template <typename T = double>
Values<T> random_values(Random& random, std::int64_t rows, std::int64_t columns, double size = 1.0) {
  Values<T> values(rows, columns);
  for (T& x : values.data) x = static_cast<T>(static_cast<float>(size * (2.0 * random.uniform() - 1.0)));
  return values;
}

inline Ints random_ints(Random& random, std::int64_t count, std::int64_t bound) {
  Ints numbers(static_cast<std::size_t>(count));
  for (auto& n : numbers) n = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(bound)));
  return numbers;
}

/// Returns the rope table for positions 0 to `last`: pair i is rotated by position * base^(-2 i / head_dim).
template <typename T = double>
Values<T> turns_to(std::int64_t last, int head_dim, double base) {
  const int half = head_dim / 2;
  Values<T> turns(last + 1, head_dim);
  for (std::int64_t p = 0; p <= last; ++p) {
    for (int i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(base, -2.0 * i / head_dim);
      turns(p, i) = static_cast<T>(std::cos(angle));
      turns(p, half + i) = static_cast<T>(std::sin(angle));
    }
  }
  return turns;
}

/// Returns `count` rows from `first` on.
template <typename T>
Values<T> rows_of(const Values<T>& x, std::int64_t first, std::int64_t count) {
  const auto begin = x.data.begin() + first * x.columns;
  return {count, x.columns, std::vector<T>(begin, begin + count * x.columns)};
}

/// Returns `count` columns from `first` on.
template <typename T>
Values<T> columns_of(const Values<T>& x, std::int64_t first, std::int64_t count) {
  Values<T> part(x.rows, count);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < count; ++c) part(r, c) = x(r, first + c);
  }
  return part;
}

inline Reals plus(const Reals& a, const Reals& b) {
  Reals sum = a;
  for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += b.data[i];
  return sum;
}

inline double inner(const Reals& a, const Reals& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += a.data[i] * b.data[i];
  return sum;
}

/// Expects that values differ by at most tolerance * (1 + |expected|).
inline void expect_close(const Reals& actual, const Reals& expected, double tolerance,
                         const char* what = "") {
  ASSERT_EQ(actual.rows, expected.rows) << what;
  ASSERT_EQ(actual.columns, expected.columns) << what;
  for (std::size_t i = 0; i < actual.data.size(); ++i) {
    ASSERT_NEAR(actual.data[i], expected.data[i], tolerance * (1.0 + std::abs(expected.data[i])))
        << what << " at value " << i << " of " << actual.rows << " x " << actual.columns;
  }
}

constexpr double kExact = 1e-12;    ///< error of the same sum in another order
constexpr double kGradient = 1e-7;  ///< error of central differences: kStep^2 and 1e-16 / kStep
constexpr double kDifference = 1e-5;

/// Returns d f() / d input by central differences. f reads `input` and returns one number.
template <typename F>
Reals numeric_gradient(Reals& input, F f) {
  Reals gradient(input.rows, input.columns);
  for (std::size_t i = 0; i < input.data.size(); ++i) {
    const double x = input.data[i];
    input.data[i] = x + kDifference;
    const double above = f();
    input.data[i] = x - kDifference;
    const double below = f();
    input.data[i] = x;
    gradient.data[i] = (above - below) / (2.0 * kDifference);
  }
  return gradient;
}

}  // namespace dflop::testing
