// Compares f32 with f64, and targets with each other, on the same inputs. Errors are the norm of the
// difference relative to the norm of the result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace precision_test {

using Outputs = std::vector<std::vector<double>>;
constexpr double kRelative = 2e-6;  // about 30 roundings of 2^-24 each

template <typename T>
void keep(Outputs& outputs, const Values<T>& values) {
  outputs.emplace_back(values.data.begin(), values.data.end());
}

double relative_error(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(actual[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / size);
}

template <typename T>
Outputs linear_outputs(HostTarget target) {
  Random random(67);
  const auto x = random_values<T>(random, 50, 40);
  const auto weight = random_values<T>(random, 30, 40);
  const auto bias = random_values<T>(random, 1, 30);
  const auto dy = random_values<T>(random, 50, 30);
  Values<T> y(50, 30), dx(50, 40), dweight(30, 40), dbias(1, 30);
  const auto kernels = host<T>(target);
  kernels->linear(y, x, weight, bias);
  kernels->linear_backward_input(dx, dy, weight);
  kernels->linear_backward_weight(dweight, dbias, dy, x, Beta::one);
  Outputs outputs;
  for (const auto* values : {&y, &dx, &dweight, &dbias}) keep(outputs, *values);
  return outputs;
}

template <typename T>
Outputs norm_outputs(HostTarget target) {
  Random random(71);
  auto x = random_values<T>(random, 20, 96, 3.0);
  const auto gamma = random_values<T>(random, 1, 96);
  const auto beta = random_values<T>(random, 1, 96);
  const auto dy = random_values<T>(random, 20, 96);
  const auto added = random_values<T>(random, 20, 96);
  Values<T> y(20, 96), dx(20, 96), dgamma(1, 96), dbeta(1, 96), layer(20, 2), rms(20, 1);
  const auto kernels = host<T>(target);
  Outputs outputs;
  kernels->layer_norm(y, layer, x, added, gamma, beta, 1e-5);
  kernels->layer_norm_backward(dx, dgamma, dbeta, dy, x, gamma, layer, added);
  for (const auto* values : {&x, &y, &layer, &dx, &dgamma, &dbeta}) keep(outputs, *values);
  kernels->rms_norm(y, rms, x, added, gamma, 1e-5);
  kernels->rms_norm_backward(dx, dgamma, dy, x, gamma, rms, added);
  for (const auto* values : {&x, &y, &rms, &dx, &dgamma}) keep(outputs, *values);
  return outputs;
}

template <typename T>
Outputs activation_outputs(HostTarget target) {
  Random random(73);
  const auto x = random_values<T>(random, 20, 80, 6.0);
  const auto wide = random_values<T>(random, 20, 160, 6.0);
  const auto dy = random_values<T>(random, 20, 80);
  Values<T> y(20, 80), dx(20, 80), gated(20, 80), dwide(20, 160), erf(20, 80), derf(20, 80);
  const auto kernels = host<T>(target);
  kernels->gelu(y, x);
  kernels->gelu_backward(dx, dy, x);
  kernels->swiglu(gated, wide);
  kernels->swiglu_backward(dwide, dy, wide);
  kernels->gelu_erf(erf, x);
  kernels->gelu_erf_backward(derf, dy, x);
  Outputs outputs;
  for (const auto* values : {&y, &dx, &gated, &dwide, &erf, &derf}) keep(outputs, *values);
  return outputs;
}

template <typename T>
Outputs attention_outputs(HostTarget target) {
  Random random(79);
  const AttentionShape shape{4, 2, 16, true};
  const Ints offsets = {0, 70, 75};
  const Ints positions = random_ints(random, 75, 4096);
  auto qkv = random_values<T>(random, 75, shape.qkv_columns(), 2.0);
  const auto dout = random_values<T>(random, 75, shape.out_columns());
  Values<T> out(75, shape.out_columns()), statistics(75, 4), dqkv(75, shape.qkv_columns());
  const auto kernels = host<T>(target);
  kernels->rope(qkv, shape, indices(positions), turns_to<T>(4096, 16, 10000.0), false);
  kernels->attention(out, statistics, qkv, shape, indices(offsets));
  kernels->attention_backward(dqkv, dout, out, statistics, qkv, shape, indices(offsets));
  Outputs outputs;
  for (const auto* values : {&qkv, &out, &statistics, &dqkv}) keep(outputs, *values);
  return outputs;
}

template <typename T>
Outputs vocabulary_outputs(HostTarget target) {
  Random random(83);
  const auto table = random_values<T>(random, 30, 12);
  const Ints ids = random_ints(random, 40, 30);
  auto logits = random_values<T>(random, 40, 30, 5.0);
  Values<T> y(40, 12), dtable(30, 12), parts(40, 3), merged(40, 3), loss(1, 1);
  const auto kernels = host<T>(target);
  kernels->embedding(y, table, indices(ids), 0);
  kernels->embedding_backward(dtable, y, indices(ids), 0);
  kernels->cross_entropy_parts(parts, logits, indices(ids), 0);
  kernels->cross_entropy_merge(merged, parts, 1);
  kernels->cross_entropy_backward(logits, loss, merged, indices(ids), 0, 0.01);
  Outputs outputs;
  for (const auto* values : {&y, &dtable, &parts, &merged, &logits, &loss}) keep(outputs, *values);
  return outputs;
}

template <typename T>
Outputs row_outputs(HostTarget target) {
  Random random(89);
  const auto x = random_values<T>(random, 20, 8);
  const Ints begin = {0, 3, 3};
  const Ints end = {20, 10, 4};
  const Ints index = random_ints(random, 20, 20);
  const auto weights = random_values<T>(random, 1, 20);
  Values<T> mixed(3, 8), scaled(20, 8), products(1, 8), gathered(3, 8), sum(20, 8, T(1)), squares(1, 1);
  const auto kernels = host<T>(target);
  kernels->mix_rows(mixed, x, indices(begin), indices(end), indices(index), weights);
  kernels->scale_columns(scaled, x, rows_of(x, 0, 1));
  kernels->column_products(products, x, scaled);
  kernels->sum_of_squares(squares, x);
  kernels->gather_rows(gathered, x, indices(begin));
  kernels->scatter_add_rows(sum, gathered, indices(begin));
  kernels->add(sum, x);
  Outputs outputs;
  for (const auto* values : {&mixed, &scaled, &products, &gathered, &sum, &squares}) keep(outputs, *values);
  return outputs;
}

template <typename T>
Outputs adamw_outputs(HostTarget target) {
  Random random(97);
  auto master = random_values<T>(random, 10, 60);
  const auto gradient = random_values<T>(random, 10, 60);
  Values<T> weight(10, 60), m(10, 60), v(10, 60);
  for (int step = 1; step <= 3; ++step) {
    host<T>(target)->adamw(weight, master, m, v, gradient, {1e-3, 0.9, 0.95, 1e-8, 0.1, step});
  }
  Outputs outputs;
  for (const auto* values : {&weight, &master, &m, &v}) keep(outputs, *values);
  return outputs;
}

/// Expects each output within `most` of the expected one. Returns the largest error.
double expect_near(const Outputs& actual, const Outputs& expected, double most) {
  double largest = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = relative_error(actual[i], expected[i]);
    EXPECT_LT(error, most) << "output " << i;
    largest = std::max(largest, error);
  }
  return largest;
}

/// Compares f32 of all targets, and f64 of the other targets, with f64 of the portable target.
template <typename F32, typename F64>
void expect_precision(F32 narrow, F64 wide) {
  const Outputs expected = wide(HostTarget::portable);
  EXPECT_GT(expect_near(narrow(HostTarget::portable), expected, kRelative), 0.0) << "was it f64?";
  if (fastest_host_target() == HostTarget::portable) GTEST_SKIP() << "this processor has one target";
  expect_near(narrow(HostTarget::avx2), expected, kRelative);
  expect_near(wide(HostTarget::avx2), expected, 1e-14);
}

TEST(Precision, Linear) {
  expect_precision(linear_outputs<float>, linear_outputs<double>);
}

TEST(Precision, Norms) {
  expect_precision(norm_outputs<float>, norm_outputs<double>);
}

TEST(Precision, Activations) {
  expect_precision(activation_outputs<float>, activation_outputs<double>);
}

TEST(Precision, Attention) {
  expect_precision(attention_outputs<float>, attention_outputs<double>);
}

TEST(Precision, Vocabulary) {
  expect_precision(vocabulary_outputs<float>, vocabulary_outputs<double>);
}

TEST(Precision, Rows) {
  expect_precision(row_outputs<float>, row_outputs<double>);
}

TEST(Precision, AdamW) {
  expect_precision(adamw_outputs<float>, adamw_outputs<double>);
}

}  // namespace precision_test
}  // namespace dflop::testing
