#include "costmodel/recorded/recorded.hpp"
#include "sim/engine.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/timeline.hpp"
#include "traces/profiler/check.hpp"
#include "traces/profiler/joined.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/usage.hpp"

namespace {

/// Separates the traces of two ranks. A text without it serves as both traces.
constexpr std::string_view kNextRank = "\n---\n";

/// A step that is found to be replayable must allow writing, rebuilding and running.
void run_steps(const dflop::PipelineImport& read) {
  for (const dflop::PipelineStep& step : read.steps) {
    dflop::require(dflop::parse_timeline(dflop::to_json(step.timeline), "step.json") == step.timeline);
    try {
      const dflop::RecordedProgram program = dflop::recorded_program(step.timeline);
      dflop::simulate(program.program, program.costs, dflop::Detail::usage);
    } catch (const dflop::Error& error) {  // inconsistent, which the import reports
      dflop::require(error.kind() == dflop::ErrorKind::input);
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const std::size_t cut = text.find(kNextRank);
    const std::string_view second =
        cut == std::string_view::npos ? text : text.substr(cut + kNextRank.size());
    std::vector<dflop::KinetoTrace> traces = {dflop::parse_kineto(text.substr(0, cut), "fuzz0.json"),
                                              dflop::parse_kineto(second, "fuzz1.json")};
    traces[0].rank = 0;
    traces[1].rank = 1;
    const dflop::KinetoRanks ranks = dflop::compare_ranks(traces);
    dflop::check_kineto(traces, ranks);
    run_steps(dflop::import_pipeline(traces, ranks));
    if (!dflop::why_not_joined(traces, ranks)) run_steps(dflop::import_joined(traces, ranks));
    dflop::stream_usage(traces[0]);
    dflop::group_usage(traces[0], ranks.shares[0]);
    const std::vector<dflop::Timeline> timelines = dflop::to_timelines(traces, ranks);
    const std::string json = dflop::to_json(dflop::TimelineFile{timelines});
    dflop::require(dflop::parse_timelines(json, "again.json").iterations == timelines);
  });
}
