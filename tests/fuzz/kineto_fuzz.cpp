#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/timeline.hpp"
#include "traces/profiler/check.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/usage.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    std::vector<dflop::KinetoTrace> traces = {dflop::parse_kineto(text, "fuzz.json")};
    traces[0].rank = 0;
    traces.push_back(traces[0]);
    traces[1].rank = 1;
    const dflop::KinetoRanks ranks = dflop::compare_ranks(traces);
    dflop::check_kineto(traces, ranks);
    const dflop::PipelineImport pipeline = dflop::import_pipeline(traces, ranks);
    for (const dflop::PipelineStep& step : pipeline.steps)
      dflop::require(dflop::parse_timeline(dflop::to_json(step.timeline), "step.json") == step.timeline);
    dflop::stream_usage(traces[0]);
    dflop::group_usage(traces[0], ranks.shares[0]);
    const std::vector<dflop::Timeline> timelines = dflop::to_timelines(traces, ranks);
    const std::string json = dflop::to_json(dflop::TimelineFile{timelines});
    dflop::require(dflop::parse_timelines(json, "again.json").iterations == timelines);
  });
}
