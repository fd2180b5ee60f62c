#include "experiments/simulate_pipeline.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/verify.hpp"
#include "sim/engine.hpp"
#include "traces/output_file.hpp"
#include "traces/perfetto.hpp"
#include "traces/pipeline_file.hpp"
#include "traces/text_file.hpp"
#include "traces/timeline_file.hpp"

namespace dflop {
namespace {

Table summary_table(const RawPipeline& pipeline, const Timeline& timeline) {
  return {
      {{"schedule", "schedule"},
       {"microbatches", "microbatches"},
       {"makespan_s", "makespan s", 6},
       {"idle_fraction", "idle %", 1, 100}},
      {{std::string(to_string(pipeline.shape.kind)), static_cast<std::int64_t>(pipeline.shape.microbatches),
        Seconds(timeline.makespan).count(), idle_fraction(timeline)}}};
}

Table stage_table(const Timeline& timeline) {
  Table table;
  table.columns = {
      {"stage", "stage"},      {"busy_s", "busy s", 6},         {"bubble_s", "bubble s", 6},
      {"wait_s", "wait s", 6}, {"transfer_s", "transfer s", 6}, {"peak_bytes", "peak GiB", 3, 0x1p-30}};
  for (const GroupUsage& group : timeline.groups) {
    table.rows.push_back({static_cast<std::int64_t>(group.first_rank), Seconds(group.busy).count(),
                          Seconds(group.bubble).count(), Seconds(group.wait).count(),
                          Seconds(group.transfer).count(), group.peak_memory.count});
  }
  return table;
}

void print_result(Format format, const RawPipeline& pipeline, const Timeline& timeline) {
  const Table summary = summary_table(pipeline, timeline);
  const Table stages = stage_table(timeline);
  switch (format) {
    case Format::table:
      fmt::print("{}\nby stage:\n\n{}", to_text(summary, terminal_width()),
                 to_text(stages, terminal_width()));
      break;
    case Format::json: {
      nlohmann::ordered_json out = nlohmann::ordered_json::parse(to_json(summary, -1))[0];
      out["stages"] = nlohmann::ordered_json::parse(to_json(stages, -1));
      fmt::print("{}\n", out.dump(2));
      break;
    }
    case Format::csv:
      fmt::print("{}", to_csv(stages));
  }
}

}  // namespace

int simulate_pipeline(const Values& values) {
  for (const char* other : {"plan", "schedule"}) {
    if (values.count(other) == 0) continue;
    throw Error(ErrorKind::usage,
                fmt::format("option '--pipeline': takes the place of '--plan' and '--schedule', found '--{}'",
                            other));
  }
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const auto perfetto = read_output(values, "perfetto");
  const auto path = values["pipeline"].as<std::string>();
  const RawPipeline pipeline = parse_pipeline(read_text_file(path), path);
  const PricedPipeline priced = make_program(pipeline);
  verify(priced.program);
  const Detail detail = out || perfetto ? Detail::spans : Detail::usage;
  const Timeline timeline = simulate(priced.program, priced.costs, detail);
  StagedOutputs files;
  if (out) files.add(*out, to_json(TimelineFile{{timeline}}));
  if (perfetto) files.add(*perfetto, to_perfetto(std::span(&timeline, 1)));
  files.commit();
  print_result(format, pipeline, timeline);
  return 0;
}

}  // namespace dflop
