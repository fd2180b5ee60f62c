#include "tests/core/fixtures.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {
namespace {

/// Lowering visits all encoder sequences one by one, and a few bytes of a file can name 10^9.
constexpr std::int64_t kMaxSequences = 100'000;

/// Sums and byte counts of any accepted file must fit in 64 bits.
void lower_one_stage_each(const ScheduledIteration& iteration) {
  std::int64_t sequences = 0;
  for (const Sample& sample : iteration.samples) sequences += sample.encoder().sequences;
  if (sequences > kMaxSequences) return;
  const int dp = iteration.assignment.dp;
  const Plan plan =
      testing::disaggregated_plan({1, 1, 2, {4}}, {1, 1, dp, {6}}, iteration.assignment.microbatches,
                                  static_cast<int>(iteration.samples.size()));
  lower(plan, testing::tiny_model(), iteration.samples, iteration.assignment);
}

}  // namespace
}  // namespace dflop

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::ScheduleFile schedule = dflop::parse_schedule(text, "fuzz.json");
    const std::string written = dflop::to_json(schedule);
    dflop::require(dflop::to_json(dflop::parse_schedule(written, "again.json")) == written);
    for (const dflop::ScheduledIteration& iteration : schedule.iterations)
      dflop::lower_one_stage_each(iteration);
  });
}
