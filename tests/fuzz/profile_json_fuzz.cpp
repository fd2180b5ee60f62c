#include <cmath>

#include "costmodel/profiled/profiled.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/specs.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::ProfileTables profile = dflop::parse_profile_tables(text, "fuzz.json");
    dflop::require(dflop::parse_profile_tables(dflop::to_json(profile), "again.json") == profile);
    const dflop::ProfiledCostModel cost(profile);
    dflop::Stage stage;
    stage.encoder_layers = stage.llm_layers = 1;
    stage.connector = stage.embedding = stage.head = true;
    stage.tp = profile.tp.front().mode.tp;
    stage.sequence_parallel = profile.tp.front().mode.sequence_parallel;
    for (const std::int64_t tokens : {1, 100, 1'000'000}) {
      const dflop::Workload work{1, tokens, tokens * tokens};
      const double time = cost.compute(dflop::Op::backward, stage, {work, work}).count();
      dflop::require(std::isfinite(time) && time >= 0);
    }
  });
}
