// Properties of all operations: precision, matrices without rows, errors for wrong shapes.
#include "kernels/host/host_kernels.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.hpp"
#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace host_kernels_test {

TEST(HostKernels, AreMadeForeveryPrecision) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    EXPECT_EQ(make_host_kernels(dtype)->dtype(), dtype);
  }
}

TEST(HostKernels, HaveEveryOperation) {
  for (const HostTarget target : {HostTarget::portable, fastest_host_target()}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const auto kernels = make_host_kernels(dtype, target);
      for_each_operation([&](auto operation) {
        EXPECT_TRUE(((*kernels).*operation).is_set())
            << to_string(dtype) << ": " << ((*kernels).*operation).name();
      });
    }
  }
}

// All operations have the same size. Kernels also has a pointer to its virtual functions and, in as many
// bytes, the DType.
TEST(Kernels, AreListedCompletely) {
  std::size_t operations = 0;
  for_each_operation([&](auto) { ++operations; });
  EXPECT_EQ(sizeof(Kernels), operations * sizeof(Operation<void()>) + 2 * sizeof(void*));
}

TEST(Kernels, SayWhichOperationADeviceLacks) {
  const Kernels none(DType::f32);
  try {
    none.zero(Matrix());
    ADD_FAILURE() << "accepted an operation without a function";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "zero: this device's kernels have no function for it");
  }
}

// Nothing is read, and sums stay unchanged.
TEST(HostKernels, AllowMatricesWithoutRows) {
  const auto k = host<double>();
  const AttentionShape shape{2, 1, 2, true};
  const Matrix none2{nullptr, 0, 2}, none4{nullptr, 0, 4}, none8{nullptr, 0, 8};
  const Sums kept1{nullptr, 0, 1}, kept2{nullptr, 0, 2}, kept3{nullptr, 0, 3};
  const Reals weight(4, 2, 1.0), row(1, 2, 1.0);
  Reals dweight(4, 2, 7.0), drow(1, 2, 7.0), dbias(1, 4, 7.0), loss(1, 1, 7.0);
  const Indices empty;
  k->linear(none4, none2, weight, ConstMatrix());
  k->linear_backward_input(none2, none4, weight);
  k->linear_backward_weight(dweight, dbias, none4, none2, Beta::one);
  k->layer_norm(none2, kept2, none2, none2, row, row, 1e-5);
  k->layer_norm_backward(none2, drow, drow, none2, none2, row, kept2, none2);
  k->rms_norm(none2, kept1, none2, none2, row, 1e-5);
  k->rms_norm_backward(none2, drow, none2, none2, row, kept1, none2);
  k->gelu(none2, none2);
  k->gelu_backward(none2, none2, none2);
  k->gelu_erf(none2, none2);
  k->gelu_erf_backward(none2, none2, none2);
  k->gelu_quick(none2, none2);
  k->gelu_quick_backward(none2, none2, none2);
  k->swiglu(none2, none4);
  k->swiglu_backward(none4, none2, none4);
  k->rope(none8, shape, empty, kept2, false);
  for (const Ints& offsets : {Ints{}, Ints{0}, Ints{0, 0}}) {
    k->attention(none4, kept2, none8, shape, indices(offsets));
    k->attention_backward(none8, none4, none4, kept2, none8, shape, indices(offsets));
  }
  k->embedding(none2, weight, empty, 0);
  k->embedding_backward(dweight, none2, empty, 0);
  k->cross_entropy_parts(kept3, none4, empty, 0);
  k->cross_entropy_merge(kept3, kept3, 2);
  k->cross_entropy_backward(none4, loss, kept3, empty, 0, 1.0);
  k->mix_rows(none2, none2, empty, empty, empty, Reals(1, 0));
  k->scale_columns(none2, none2, row);
  k->column_products(drow, none2, none2);
  k->sum_of_squares(loss, kept2);
  k->gather_rows(none2, none2, empty);
  k->scatter_add_rows(dweight, none2, empty);
  k->add(none2, none2);
  k->zero(none2);
  k->zero(kept2);
  k->round(none2, kept2);
  k->adamw(none2, kept2, kept2, kept2, kept2, {});
  for (const auto* sums : {&dweight, &drow, &dbias, &loss}) {
    for (const double x : sums->data) EXPECT_EQ(x, 7.0);
  }
}

/// A call with one wrong argument, and its error message.
struct Wrong {
  std::string message;
  std::function<void(Kernels&)> call;
};

void expect_errors(const std::vector<Wrong>& cases) {
  const auto kernels = host<double>();
  for (const Wrong& wrong : cases) {
    try {
      wrong.call(*kernels);
      ADD_FAILURE() << "accepted, expected: " << wrong.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_EQ(error.what(), wrong.message);
    }
  }
}

TEST(HostKernels, NameTheOperationAndBothShapes) {
  Reals a(3, 2), b(3, 4), row(1, 2), row4(1, 4), pair(3, 2), triple(3, 3);
  const Ints two = {0, 1};
  expect_errors({
      {"linear: weight is 3 x 4, expected 2 x 2", [&](auto& k) { k.linear(a, a, b, {}); }},
      {"linear: x is 3 x 2, expected 1 x 2", [&](auto& k) { k.linear(row, a, Reals(2, 2), {}); }},
      {"linear: bias is 1 x 4, expected 1 x 2", [&](auto& k) { k.linear(a, a, Reals(2, 2), row4); }},
      {"linear_backward_input: dy is 1 x 2, expected 3 x 2",
       [&](auto& k) { k.linear_backward_input(b, row, Reals(2, 4)); }},
      {"linear_backward_weight: dweight is 3 x 4, expected 2 x 4",
       [&](auto& k) { k.linear_backward_weight(b, {}, a, b, Beta::one); }},
      {"layer_norm: gamma is 1 x 4, expected 1 x 2",
       [&](auto& k) { k.layer_norm(a, pair, a, {}, row4, row, 0.1); }},
      {"layer_norm: statistics is 3 x 3, expected 3 x 2",
       [&](auto& k) { k.layer_norm(a, triple, a, {}, row, row, 0.1); }},
      {"layer_norm: added is 3 x 4, expected 3 x 2",
       [&](auto& k) { k.layer_norm(a, pair, a, b, row, row, 0.1); }},
      {"layer_norm_backward: dbeta is 1 x 4, expected 1 x 2",
       [&](auto& k) { k.layer_norm_backward(a, row, row4, a, a, row, pair, {}); }},
      {"layer_norm_backward: added is 1 x 2, expected 3 x 2",
       [&](auto& k) { k.layer_norm_backward(a, row, row, a, a, row, pair, row); }},
      {"rms_norm: y is 3 x 4, expected 3 x 2", [&](auto& k) { k.rms_norm(b, pair, a, {}, row, 0.1); }},
      {"rms_norm: added is 1 x 2, expected 3 x 2",
       [&](auto& k) { k.rms_norm(a, Reals(3, 1), a, row, row, 0.1); }},
      {"rms_norm_backward: statistics is 3 x 2, expected 3 x 1",
       [&](auto& k) { k.rms_norm_backward(a, row, a, a, row, pair, {}); }},
      {"rms_norm_backward: added is 3 x 4, expected 3 x 2",
       [&](auto& k) { k.rms_norm_backward(a, row, a, a, row, Reals(3, 1), b); }},
      {"gelu: y is 3 x 4, expected 3 x 2", [&](auto& k) { k.gelu(b, a); }},
      {"gelu_backward: dy is 3 x 4, expected 3 x 2", [&](auto& k) { k.gelu_backward(a, b, a); }},
      {"gelu_erf: y is 3 x 4, expected 3 x 2", [&](auto& k) { k.gelu_erf(b, a); }},
      {"gelu_quick: y is 3 x 4, expected 3 x 2", [&](auto& k) { k.gelu_quick(b, a); }},
      {"gelu_erf_backward: dy is 3 x 4, expected 3 x 2", [&](auto& k) { k.gelu_erf_backward(a, b, a); }},
      {"scale_columns: x is 3 x 4, expected 3 x 2", [&](auto& k) { k.scale_columns(a, b, row); }},
      {"scale_columns: scale is 1 x 4, expected 1 x 2", [&](auto& k) { k.scale_columns(a, a, row4); }},
      {"column_products: b is 3 x 4, expected 3 x 2", [&](auto& k) { k.column_products(row, a, b); }},
      {"column_products: sum is 3 x 2, expected 1 x 2", [&](auto& k) { k.column_products(a, a, a); }},
      {"sum_of_squares: sum is 1 x 2, expected 1 x 1", [&](auto& k) { k.sum_of_squares(row, a); }},
      {"sum_of_squares: x has no memory",
       [&](auto& k) { k.sum_of_squares(Reals(1, 1), ConstSums(nullptr, 3, 2)); }},
      {"swiglu: x is 3 x 2, expected 3 x 4", [&](auto& k) { k.swiglu(a, a); }},
      {"swiglu_backward: x is 3 x 4, expected 3 x 8", [&](auto& k) { k.swiglu_backward(b, b, b); }},
      {"embedding: y is 3 x 2, expected 2 x 2", [&](auto& k) { k.embedding(a, a, indices(two), 0); }},
      {"embedding_backward: dy is 3 x 2, expected 2 x 2",
       [&](auto& k) { k.embedding_backward(a, a, indices(two), 0); }},
      {"cross_entropy_parts: targets has 2 numbers, expected 3",
       [&](auto& k) { k.cross_entropy_parts(triple, b, indices(two), 0); }},
      {"cross_entropy_merge: parts is 3 x 3, expected 6 x 3",
       [&](auto& k) { k.cross_entropy_merge(triple, triple, 2); }},
      {"cross_entropy_merge: 0 ranks, expected 1 or more",
       [&](auto& k) { k.cross_entropy_merge(triple, Reals(0, 3), 0); }},
      {"cross_entropy_parts: logits have no columns, expected one for each class",
       [&](auto& k) { k.cross_entropy_parts(Reals(0, 3), Reals(0, 0), {}, 0); }},
      {"adamw: step is 0, expected 1 or more",
       [&](auto& k) {
         k.adamw(a, a, a, a, a, {0.1, 0.9, 0.9, 0.1, 0.0, 0});
       }},
      {"cross_entropy_backward: loss is 1 x 2, expected 1 x 1",
       [&](auto& k) { k.cross_entropy_backward(b, row, triple, indices(two), 0, 1.0); }},
      {"add: x is 3 x 4, expected 3 x 2", [&](auto& k) { k.add(a, b); }},
      {"round: x is 3 x 4, expected 3 x 2", [&](auto& k) { k.round(a, b); }},
      {"adamw: m is 3 x 4, expected 3 x 2", [&](auto& k) { k.adamw(a, a, b, a, a, {}); }},
      {"gelu: x has no memory", [&](auto& k) { k.gelu(a, ConstMatrix(nullptr, 3, 2)); }},
  });
}

TEST(HostKernels, RejectIndicesThatLeadOutOfAMatrix) {
  Reals x(3, 2), y(2, 2);
  const Ints high = {0, 3}, low = {-1, 0}, zero = {0, 0}, one = {1, 1}, four = {1, 4};
  expect_errors({
      {"gather_rows: index holds 3, expected 0 or more and less than 3",
       [&](auto& k) { k.gather_rows(y, x, indices(high)); }},
      {"scatter_add_rows: index holds -1, expected 0 or more and less than 3",
       [&](auto& k) { k.scatter_add_rows(x, y, indices(low)); }},
      {"mix_rows: window 1 is [2, 1), expected a range of the 3 taps",
       [&](auto& k) {
         k.mix_rows(y, x, indices({0, 2}), indices({1, 1}), indices({0, 1, 2}), Reals(1, 3));
       }},
      {"mix_rows: window 1 is [1, 4), expected a range of the 3 taps",
       [&](auto& k) {
         k.mix_rows(y, x, indices(one), indices(four), indices({0, 1, 2}), Reals(1, 3));
       }},
      {"mix_rows: index holds 3, expected 0 or more and less than 3",
       [&](auto& k) { k.mix_rows(y, x, indices(zero), indices(one), indices(high), Reals(1, 2)); }},
      {"mix_rows: weights is 1 x 1, expected 1 x 2",
       [&](auto& k) { k.mix_rows(y, x, indices(zero), indices(one), indices(zero), Reals(1, 1)); }},
  });
}

TEST(HostKernels, RejectHeadsAndSequencesThatDoNotFit) {
  Reals qkv(3, 8), out(3, 4), statistics(3, 2);
  const AttentionShape shape{2, 1, 2, true};
  const Ints positions = {0, 1, 2};
  const auto attend = [&](Kernels& k, const AttentionShape& s, const Ints& offsets) {
    k.attention(out, statistics, qkv, s, indices(offsets));
  };
  expect_errors({
      {"attention: 3 heads with 2 key heads of width 2, expected positive numbers, and heads that are a "
       "multiple of the key heads",
       [&](auto& k) {
         attend(k, {3, 2, 2, true}, {0, 3});
       }},
      {"attention: qkv is 3 x 8, expected 3 x 12",
       [&](auto& k) {
         attend(k, {2, 2, 2, true}, {0, 3});
       }},
      {"attention: expected offsets from 0 to the 3 rows",
       [&](auto& k) {
         attend(k, shape, {0, 2});
       }},
      {"attention: expected offsets from 0 to the 3 rows",
       [&](auto& k) {
         attend(k, shape, {1, 3});
       }},
      {"attention: expected offsets from 0 to the 3 rows", [&](auto& k) { attend(k, shape, {}); }},
      {"attention: offsets fall from 3 to 2 at sequence 1",
       [&](auto& k) {
         attend(k, shape, {0, 3, 2, 3});
       }},
      {"attention_backward: dqkv is 3 x 4, expected 3 x 8",
       [&](auto& k) {
         k.attention_backward(Reals(3, 4), out, out, statistics, qkv, shape, indices({0, 3}));
       }},
      {"rope: heads are 1 wide, expected an even number",
       [&](auto& k) {
         k.rope(qkv, {6, 1, 1, true}, indices(positions), Reals(3, 1), false);
       }},
      {"rope: rows has 2 numbers, expected 3",
       [&](auto& k) {
         k.rope(qkv, shape, indices({0, 1}), Reals(3, 2), false);
       }},
      {"rope: turns is 3 x 4, expected 3 x 2",
       [&](auto& k) { k.rope(qkv, shape, indices(positions), Reals(3, 4), false); }},
      {"rope: rows holds 2, expected 0 or more and less than 2",
       [&](auto& k) { k.rope(qkv, shape, indices(positions), Reals(2, 2), false); }},
  });
}

}  // namespace host_kernels_test
}  // namespace dflop::testing
