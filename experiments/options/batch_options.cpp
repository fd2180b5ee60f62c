#include "experiments/options/batch_options.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "experiments/cli/value_text.hpp"
#include "experiments/studies/batches.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMaxIterations = 100'000;

}  // namespace

int read_gbs(const Values& values) {
  return static_cast<int>(read_integer(values, "gbs", 1, kMaxGbs));
}

int read_iterations(const Values& values, int gbs) {
  const std::int64_t iterations = read_integer(values, "iterations", 1, kMaxIterations);
  if (iterations * gbs > kMaxSamplesInAll) {
    refuse_value("iterations",
                 fmt::format("at most {} iterations of --gbs {} ({} samples in all)", kMaxSamplesInAll / gbs,
                             gbs, kMaxSamplesInAll),
                 std::to_string(iterations));
  }
  return static_cast<int>(iterations);
}

std::uint64_t read_seed(const Values& values) {
  return static_cast<std::uint64_t>(read_integer(values, "seed", 0, INT64_MAX));
}

OutlierDelay read_delay(const Values& values, int gbs, const Plan* plan) {
  OutlierDelay delay;
  delay.window = static_cast<int>(read_integer(values, "delay-outliers", 0, kMaxDelay));
  const std::optional<std::string> bins = read_text(values, "outlier-bins");
  if (delay.window == 0) {
    if (bins) refuse_option("outlier-bins", "needs '--delay-outliers K' with K of at least 1");
    return delay;
  }
  if (bins) {
    const std::string form = fmt::format(
        "MxD, such as 16x4, microbatches and dp ranks, with M x D at most the {} samples of a "
        "batch",
        gbs);
    ValueText reader("outlier-bins", form, *bins);
    delay.microbatches = reader.number(1, gbs);
    reader.expect("x");
    delay.dp = reader.number(1, gbs / delay.microbatches);
    reader.expect_end();
  } else if (plan != nullptr) {
    delay.microbatches = plan->microbatches;
    delay.dp = plan->llm.dp;
  } else {
    refuse_option(
        "delay-outliers",
        "needs '--outlier-bins MxD', because there is no plan yet that gives microbatches and dp ranks");
  }
  return delay;
}

}  // namespace dflop
