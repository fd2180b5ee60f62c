#include "costmodel/recorded/recorded.hpp"
#include "sim/engine.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/timeline.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::TimelineFile file = dflop::parse_timelines(text, "fuzz.json");
    dflop::require(dflop::parse_timelines(dflop::to_json(file), "again.json").iterations == file.iterations);
    dflop::to_perfetto(file.iterations, 1000);
    for (const dflop::Timeline& timeline : file.iterations) {
      const dflop::RecordedProgram recorded = dflop::recorded_program(timeline);
      dflop::simulate(recorded.program, recorded.costs, dflop::Detail::usage);
    }
  });
}
