#include "experiments/live_setup.hpp"

#include <algorithm>

#include "backend/host_ranks.hpp"
#include "core/error.hpp"
#include "experiments/option_values.hpp"

namespace dflop {

std::unique_ptr<World> make_world(const std::string& device, int ranks) {
  if (device != "host") refuse_value("device", "host", device);
  return make_host_ranks(ranks);
}

void require_live_plan(const Plan& plan, const std::string& where) {
  const int tp = std::max(plan.encoder.tp, plan.llm.tp);
  if (plan.sequence_parallel && tp > 1) {
    throw Error(
        ErrorKind::input,
        "live runs have no sequence parallelism yet; expected a plan made with --no-sequence-parallel",
        where);
  }
}

Assignment any_assignment(const Plan& plan) {
  Assignment assignment{plan.microbatches, plan.llm.dp,
                        std::vector<std::int32_t>(static_cast<std::size_t>(plan.gbs))};
  for (std::size_t i = 0; i < assignment.bin.size(); ++i) {
    assignment.bin[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(plan.bins()));
  }
  return assignment;
}

}  // namespace dflop
