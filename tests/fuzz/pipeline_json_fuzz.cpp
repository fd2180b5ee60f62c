#include "core/program/lowering.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/pipeline.hpp"

/// A few bytes of a file can name millions of instructions.
constexpr std::int64_t kMaxCells = 10'000;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::RawPipeline pipeline = dflop::parse_pipeline(text, "fuzz.json");
    if (std::int64_t{pipeline.shape.stages()} * pipeline.shape.microbatches > kMaxCells) return;
    const dflop::PricedProgram priced = dflop::make_program(pipeline);
    try {
      dflop::verify(priced.program);
    } catch (const dflop::Error&) {
      dflop::require(false);  // accepted files must verify
    }
  });
}
