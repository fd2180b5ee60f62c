// Operations on all parameters take one call for neighbors with the same settings.
#include <gtest/gtest.h>

#include "backend/host/world.hpp"
#include "backend/model/parameter_store.hpp"

namespace dflop {
namespace parameter_runs_test {

using Kind = ParameterStore::Kind;

Parameter whole(const std::string& name, std::int64_t rows, std::int64_t columns, bool decayed = true) {
  Parameter parameter{name, rows, columns, {{0, rows}}, {0, columns}};
  parameter.decayed = decayed;
  return parameter;
}

/// A store of parameters whose counts are not multiples of 8, so that there are zeros between them. All
/// values of each gradient are the same: 1, 2, 3 or 4.
class ParameterRuns : public ::testing::Test {
 protected:
  ParameterRuns()
      : world_(1),
        local_(world_, 0, DType::f64),
        rank_(context_of(local_)),
        store_(rank_,
               {whole("encoder.a", 3, 5), whole("llm.b", 2, 7), whole("llm.c", 1, 9, false),
                whole("llm.d", 5, 1)},
               1, 0, 1) {
    double value = 0;
    for (const Parameter& parameter : store_.list()) {
      const auto count = static_cast<std::size_t>(parameter.count());
      store_.write(rank_, parameter, Kind::gradient, std::vector<double>(count, ++value));
    }
  }

  /// Replaces an operation by one that only counts its calls.
  template <typename... Args>
  void count(Operation<void(Args...)>& operation) {
    operation.template set<[](int& calls, Args...) { ++calls; }>(calls_);
  }
  double squares(const std::function<bool(const Parameter&)>& counts) {
    SumTensor sum(rank_, 1, 1);
    rank_.kernels.zero(Sums(sum));
    store_.add_squares(rank_, counts, sum);
    return download(rank_, sum.view().data, DType::f64, 1).front();
  }
  int calls_of_squares(const std::function<bool(const Parameter&)>& counts) {
    count(local_.kernels->sum_of_squares);
    calls_ = 0;
    squares(counts);
    return calls_;
  }

  HostWorld world_;
  LocalRank local_;
  RankContext rank_;
  ParameterStore store_;
  int calls_ = 0;
};

bool all(const Parameter&) {
  return true;
}
bool not_b(const Parameter& parameter) {
  return parameter.name != "llm.b";
}
bool none(const Parameter&) {
  return false;
}

/// 15 * 1 + 14 * 4 + 9 * 9 + 5 * 16 = 232. The part of b is 56.
TEST_F(ParameterRuns, SquaresSkipParametersThatDoNotCount) {
  EXPECT_DOUBLE_EQ(squares(all), 232);
  EXPECT_DOUBLE_EQ(squares(not_b), 176);
  EXPECT_DOUBLE_EQ(squares(none), 0);
}

TEST_F(ParameterRuns, SquaresOfNeighborsTakeOneCall) {
  EXPECT_EQ(calls_of_squares(all), 1);
  EXPECT_EQ(calls_of_squares(not_b), 2);
  EXPECT_EQ(calls_of_squares(none), 0);
}

/// Without decay, all parameters except the encoder's have the same settings; with decay, c differs.
TEST_F(ParameterRuns, StepsOfNeighborsTakeOneCall) {
  count(local_.kernels->adamw);
  const auto calls_of = [&](double decay, double encoder_rate) {
    OptimizerStep step;
    step.weight_decay = decay;
    step.rates.encoder = encoder_rate;
    calls_ = 0;
    store_.step(rank_, step);
    return calls_;
  };
  EXPECT_EQ(calls_of(0, 1), 1);
  EXPECT_EQ(calls_of(0, 0.5), 2);
  EXPECT_EQ(calls_of(0, 0), 1);
  EXPECT_EQ(calls_of(0.1, 1), 3);
}

/// A step with a gradient factor equals a step with multiplied gradients, and leaves the gradients unchanged.
TEST_F(ParameterRuns, StepsTakeAFactorOfGradients) {
  OptimizerStep step;
  step.gradient_factor = 0.25;
  store_.step(rank_, step);
  for (const Parameter& parameter : store_.list()) {
    const double gradient = store_.read(rank_, parameter, Kind::gradient).front();
    // m = (1 - 0.9) g and v = (1 - 0.95) g^2 after the first step, g = gradient / 4
    EXPECT_NEAR(store_.read(rank_, parameter, Kind::moment1).back(), 0.1 * gradient / 4, 1e-15);
    EXPECT_NEAR(store_.read(rank_, parameter, Kind::moment2).back(), 0.05 * gradient * gradient / 16, 1e-15);
  }
  EXPECT_EQ(store_.read(rank_, store_.find("llm.d"), Kind::gradient).front(), 4);
}

}  // namespace parameter_runs_test
}  // namespace dflop
