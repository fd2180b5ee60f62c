#include "experiments/commands/simulate.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "experiments/reports/explain.hpp"
#include "experiments/studies/explain.hpp"
#include "experiments/studies/what_if.hpp"
#include "sim/engine.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Returns the summary of a run; `schedule` names its order.
Table summary_table(const RawPipeline& pipeline, const std::string& schedule, const Timeline& timeline) {
  return {{{"schedule", "schedule"},
           {"microbatches", "microbatches"},
           {"makespan_s", "makespan s", 6},
           {"idle_fraction", "idle %", 1, 100}},
          {{schedule, static_cast<std::int64_t>(pipeline.shape.microbatches),
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

void print_result(Format format, const RawPipeline& pipeline, const std::string& schedule,
                  const Timeline& timeline, const std::optional<Table>& distribution,
                  const Explanation* explanation) {
  const Table summary = summary_table(pipeline, schedule, timeline);
  Table stages = stage_table(timeline);
  switch (format) {
    case Format::table:
      fmt::print("{}\nby stage:\n\n{}", to_text(summary, terminal_width()),
                 to_text(stages, terminal_width()));
      if (peak_memory(timeline) > Bytes{}) {
        fmt::print("\nthe fullest rank, when it is fullest:\n\n{}",
                   to_text(fullest_rank_table(std::span(&timeline, 1)), terminal_width()));
      }
      if (distribution)
        fmt::print("\nmakespans of all runs:\n\n{}", to_text(*distribution, terminal_width()));
      if (explanation != nullptr) fmt::print("{}", explanation_text(*explanation));
      break;
    case Format::json: {
      nlohmann::ordered_json out = json_of(summary)[0];
      if (distribution) {
        out["distribution"] = json_of(*distribution)[0];
      }
      add_memory_columns(stages, timeline);
      out["stages"] = json_of(stages);
      if (explanation != nullptr) out["explain"] = explanation_json(*explanation);
      fmt::print("{}\n", out.dump(2));
      break;
    }
    case Format::csv:
      fmt::print("{}", to_csv(distribution ? *distribution : stages));
  }
}

/// Puts a pipeline under a what-if. A shared link is shared unless another network is asked for.
ConditionedProgram condition(const WhatIf& what_if, const RawPipeline& pipeline,
                             const PricedProgram& priced) {
  const NetworkModel usual =
      pipeline.shared_link ? NetworkModel::contention : NetworkModel::latency_bandwidth;
  const NetworkMaker make_network = [&](const std::vector<double>& bandwidth_factor) {
    const RawLink path = *pipeline.path();
    return shared_link(priced.program, to_nanoseconds(path.latency), pipeline.shared_link->bytes_per_second,
                       path.bytes_per_second, bandwidth_factor);
  };
  return {what_if, priced.program, priced.costs, what_if.network.value_or(usual), make_network};
}

void refuse_plan_options(const Values& values) {
  for (const char* other : {"plan", "schedule"}) {
    if (values.count(other) == 0) continue;
    throw Error(ErrorKind::usage,
                fmt::format("option '--pipeline': takes the place of '--plan' and '--schedule', found '--{}'",
                            other));
  }
  for (const char* option : {"stage-gpu", "collectives", "leaf"}) {
    if (values.count(option) == 0) continue;
    throw Error(ErrorKind::usage, fmt::format("option '--{}': of plans, found with '--pipeline'", option));
  }
}

}  // namespace

int simulate_pipeline(const Values& values) {
  refuse_plan_options(values);
  const Format format = read_format(values);
  const SimulateOutputs outputs = read_simulate_outputs(values);
  const WhatIf what_if = read_what_if(values);
  const auto path = values["pipeline"].as<std::string>();
  const RawPipeline pipeline = parse_pipeline(read_text_file(path), path);
  if (what_if.network == NetworkModel::contention && !pipeline.shared_link) {
    throw Error(
        ErrorKind::usage,
        fmt::format("option '--network': 'contention' needs key 'shared_link' in {}, found none", path));
  }
  const auto order_path = read_text(values, "order");
  const PipelineOrder order = order_path
                                  ? parse_order(read_text_file(*order_path), *order_path, pipeline.shape)
                                  : pipeline_order(pipeline);
  const PricedProgram priced = make_program(pipeline, order, path);
  verify(priced.program);
  const Detail detail = outputs.need_spans() ? Detail::spans : Detail::usage;
  const ConditionedProgram conditioned = condition(what_if, pipeline, priced);
  const Timeline timeline = conditioned.run(0, detail);
  std::optional<Explanation> explanation;
  if (wants_explanation(values) && timeline.stalls.empty()) {
    explanation = explain(priced.program, conditioned.costs(0), conditioned.conditions());
  }
  const std::string schedule = order_path ? *order_path : std::string(to_string(pipeline.shape.kind));
  outputs.write(std::span(&timeline, 1), order, explanation, [&](const Explanation& explained) {
    return explain_report("Pipeline " + path, "dflop simulate " + typed_options(values),
                          summary_table(pipeline, schedule, timeline), explained, std::nullopt);
  });
  if (!timeline.stalls.empty()) return report_stall(format, timeline, "the pipeline", "stages");
  std::optional<Table> distribution;
  if (what_if.repeat > 1) {
    distribution = distribution_table(run_all(
        what_if.repeat, [&](std::size_t i) { return time_to_end(conditioned.run(i, Detail::usage)); }));
  }
  print_result(format, pipeline, schedule, timeline, distribution, printed(values, explanation));
  return 0;
}

}  // namespace dflop
