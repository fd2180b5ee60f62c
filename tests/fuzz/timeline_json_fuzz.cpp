#include "tests/fuzz/fuzz_target.hpp"
#include "traces/perfetto.hpp"
#include "traces/timeline_file.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::TimelineFile file = dflop::parse_timelines(text, "fuzz.json");
    dflop::require(dflop::parse_timelines(dflop::to_json(file), "again.json").iterations == file.iterations);
    dflop::to_perfetto(file.iterations, 1000);
  });
}
