// dflop simulate runs a plan and its schedule, or a pipeline without a model, in virtual time.
#include <fmt/format.h>

#include <list>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/commands/simulate.hpp"
#include "experiments/reports/explain.hpp"
#include "experiments/studies/explain.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/studies/stage_gpus.hpp"
#include "experiments/studies/study.hpp"
#include "experiments/studies/what_if.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

Table summary_table(const Evaluation& result) {
  return {{{"iteration_s_mean", "s/iteration", 4},
           {"iteration_s_p95", "p95 s", 4},
           {"samples_per_s", "samples/s", 2},
           {"llm_tokens_per_s", "LLM tokens/s", 0},
           {"mfu", "MFU %", 1, 100},
           {"idle_fraction", "idle %", 1, 100},
           {"peak_memory_bytes", "peak GiB", 1, 0x1p-30}},
          {{result.mean.count(), result.p95.count(), result.samples_per_s, result.llm_tokens_per_s,
            result.mfu, result.idle_fraction, result.peak_memory.count}}};
}

/// Shows the usage of every group in the first iteration.
Table group_table(const Timeline& timeline) {
  Table table;
  table.columns = {{"stage", "stage"},
                   {"dp_rank", "dp"},
                   {"first_rank", "rank"},
                   {"busy_s", "busy s", 4},
                   {"bubble_s", "bubble s", 4},
                   {"wait_s", "wait s", 4},
                   {"transfer_s", "transfer s", 4},
                   {"peak_memory_bytes", "peak GiB", 1, 0x1p-30}};
  for (const GroupUsage& group : timeline.groups) {
    table.rows.push_back({timeline.stages[group.stage], static_cast<std::int64_t>(group.dp_rank),
                          static_cast<std::int64_t>(group.first_rank), Seconds(group.busy).count(),
                          Seconds(group.bubble).count(), Seconds(group.wait).count(),
                          Seconds(group.transfer).count(), group.peak_memory.count});
  }
  return table;
}

void print_result(Format format, const Evaluation& result, const std::optional<Table>& distribution,
                  const Explanation* explanation) {
  const Table summary = summary_table(result);
  Table groups = group_table(result.timelines.front());
  const Table fullest = fullest_rank_table(result.timelines);
  switch (format) {
    case Format::table:
      fmt::print("{}\nfirst iteration, by tp group:\n\n{}\nthe fullest rank, when it is fullest:\n\n{}",
                 to_text(summary, terminal_width()), to_text(groups, terminal_width()),
                 to_text(fullest, terminal_width()));
      if (distribution) {
        fmt::print("\niteration times of all runs:\n\n{}", to_text(*distribution, terminal_width()));
      }
      if (explanation != nullptr) fmt::print("{}", explanation_text(*explanation));
      break;
    case Format::json: {
      nlohmann::ordered_json out = json_of(summary)[0];
      out["iterations_s"] = nlohmann::ordered_json::array();
      for (const Timeline& timeline : result.timelines)
        out["iterations_s"].push_back(Seconds(timeline.makespan).count());
      if (distribution) {
        out["distribution"] = json_of(*distribution)[0];
      }
      add_memory_columns(groups, result.timelines.front());
      out["fullest_rank"] = json_of(fullest)[0];
      out["groups"] = json_of(groups);
      if (explanation != nullptr) out["explain"] = explanation_json(*explanation);
      fmt::print("{}\n", out.dump(2));
      break;
    }
    case Format::csv:
      fmt::print("{}", to_csv(distribution ? *distribution : summary));
  }
}

/// A UserOrder is an order of the user's for all iterations, or none.
using UserOrder = std::optional<PipelineOrder>;

Iteration make(const Target& target, const Plan& plan, const ScheduledIteration& iteration,
               const UserOrder& order) {
  return make_iteration(target.problem(), plan, iteration.samples, iteration.assignment, order);
}

/// Explains the slowest iteration.
Explanation explain_slowest(const WhatIfExecutor& executor, const Target& target, const Plan& plan,
                            const ScheduleFile& schedule, const UserOrder& order, const Evaluation& result) {
  const std::size_t slowest = slowest_iteration(result.timelines);
  const Iteration iteration = make(target, plan, schedule.iterations[slowest], order);
  const ConditionedProgram conditioned = executor.condition(iteration);
  Explanation explanation = explain(iteration.program, conditioned.costs(slowest), conditioned.conditions());
  explanation.iteration = slowest;
  explanation.iterations = schedule.iterations.size();
  return explanation;
}

/// Returns the distribution of iteration times of `runs` runs of all iterations.
Table repeat(const WhatIfExecutor& executor, const Target& target, const Plan& plan,
             const ScheduleFile& schedule, const UserOrder& order, int runs) {
  std::list<Iteration> iterations;  // that stay where they are
  std::vector<std::unique_ptr<ConditionedProgram>> conditioned;
  for (const ScheduledIteration& scheduled : schedule.iterations) {
    iterations.push_back(make(target, plan, scheduled, order));
    conditioned.emplace_back(new ConditionedProgram(executor.condition(iterations.back())));
  }
  const auto run = [&](std::size_t i) {
    return time_to_end(conditioned[i % conditioned.size()]->run(i, Detail::usage));
  };
  return distribution_table(run_all(runs * iterations.size(), run));
}

void require_plan_options(const Values& values) {
  for (const char* needed : {"plan", "schedule"}) {
    if (values.count(needed) > 0) continue;
    throw Error(
        ErrorKind::usage,
        fmt::format("option '--{}': required without '--pipeline'; see 'dflop simulate --help'", needed));
  }
}

/// Makes the page of an explained iteration of a plan.
std::string plan_page(const Values& values, const Plan& plan, const Evaluation& result, const StageGpus& gpus,
                      const Explanation& explanation) {
  const Timeline& timeline = explanation.timeline;
  const int fullest = timeline.groups[fullest_rank(std::span(&timeline, 1)).group].stage;
  return explain_report(fmt::format("{} on {}: {}", plan.model, plan.cluster, describe(plan)),
                        "dflop simulate " + typed_options(values), summary_table(result), explanation,
                        gpus.usable_memory(fullest));
}

int simulate_plan(const Values& values) {
  require_plan_options(values);
  const Format format = read_format(values);
  const SimulateOutputs outputs = read_simulate_outputs(values);
  const auto plan_path = values["plan"].as<std::string>();
  const auto schedule_path = values["schedule"].as<std::string>();
  const Plan plan = parse_plan(read_text_file(plan_path), plan_path);
  const ScheduleFile schedule = parse_schedule(read_text_file(schedule_path), schedule_path);
  const WhatIf what_if = read_what_if(values);
  const Target target(plan.model, plan.cluster, plan_path,
                      [&](ClusterSpec& cluster) { what_if.apply(cluster); });
  validate(plan, target.model, target.cluster, plan_path);
  validate(schedule, plan, schedule_path);
  const StageGpus gpus(values, target.model, target.cluster, plan_stages(plan, target.model).size());
  const WhatIfExecutor executor(
      what_if, target.cluster,
      [&](const Iteration& iteration, ProgramCosts& costs) { gpus.reprice(iteration, costs); });
  const int traced = outputs.need_spans() ? static_cast<int>(schedule.iterations.size()) : 0;
  UserOrder order;
  if (const auto path = read_text(values, "order")) {
    order = parse_order(read_text_file(*path), *path, plan_shape(plan));
  }
  Evaluation result = evaluate(plan, target, schedule, traced, executor, order);
  result.mfu *= target.cluster.gpus() * target.cluster.gpu.peak_flop_per_s /
                gpus.peak_flop_per_s(result.timelines.front());
  const bool stalled = !result.timelines.back().stalls.empty();
  std::optional<Explanation> explanation;
  if (wants_explanation(values) && !stalled) {
    explanation = explain_slowest(executor, target, plan, schedule, order, result);
  }
  outputs.write(result.timelines, result.order, explanation, [&](const Explanation& explained) {
    return plan_page(values, plan, result, gpus, explained);
  });
  if (stalled) {
    const std::string iteration = fmt::format("iteration {}", result.timelines.size() - 1);
    return report_stall(format, result.timelines.back(), iteration, "tp groups");
  }
  std::optional<Table> distribution;
  if (what_if.repeat > 1) {
    distribution = repeat(executor, target, plan, schedule, order, what_if.repeat);
  }
  print_result(format, result, distribution, printed(values, explanation));
  if (const auto problem = gpus.empty() ? out_of_memory(result.timelines, target.cluster)
                                        : gpus.out_of_memory(result.timelines)) {
    say("dflop: infeasible: {}\n", *problem);
    return 3;
  }
  return 0;
}

int run_simulate(const Values& values) {
  return values.count("pipeline") > 0 ? simulate_pipeline(values) : simulate_plan(values);
}

constexpr const char* kSimulateDescription =
    R"(Prints iteration time, throughput, model FLOP utilisation, idle fraction and peak memory, and how each tp
group spent the first iteration: busy + bubble + wait = iteration time; wait is idle time while the
awaited message is in flight; transfer may overlap busy. Then what the fullest rank of all iterations
holds when it is fullest. Exit code 3 if memory is not enough or, with --fail, the run does not end; the
result is then a table of what stalls.

With --explain it also prints, for the slowest iteration, the critical path, which is the chain of
compute, messages and collectives without a gap that makes the iteration as long as it is, in % of it
by stage (messages count for the stage that sends them), and what the iteration would gain if a part
took no time or compute were even, each simulated anew: equal dp ranks take in each microbatch the mean
of theirs, equal microbatches the mean of all of a stage; 'no bubbles' is the busiest rank's busy time.
A --perfetto trace then has the path as a track of its own.

With --pipeline it runs a pipeline without a model, described by durations, and prints makespan and
the same shares and the peak bytes of activations for each stage. The file, as those in
traces/pipelines, is JSON with these keys:
  schema, version       "dflop.pipeline", 1
  schedule              )";

/// This follows the list of orders.
constexpr const char* kRest = R"(
  stages, microbatches  pipeline ranks; microbatches of an iteration
  chunks                stages of the model on each rank, for interleaved (zb-v always has 2)
  forward_s             seconds of one forward of one of the stages x chunks stages of the model:
                        a number for all, or an array with one row per stage in model order, a row
                        being a number or an array of one per microbatch
  backward_s            likewise; the input part where there is a backward_weight_s
  backward_weight_s     likewise; required by the zb schedules, added to backward_s by the others
  activation_bytes      likewise, whole numbers: kept from a forward to the end of its backward
  p2p_bytes             likewise, a row per boundary between stages: of one message, either way
  link                  {"latency_s": ..., "bandwidth_bytes_per_s": ...}, no sharing; without it and
                        shared_link messages take no time
  shared_link           likewise, one bus that all messages share, max-min fairly
  activation_limit      microbatches that a stage may hold at once: a number for all, or an array; for
                        eager-1f1b, and for the encoder's microbatches of encoder-in-bubbles
  encoder_forward_s, encoder_backward_s, encoder_bytes
                        for encoder-in-bubbles: seconds of the encoder, which fills the idle time of
                        all stages, and bytes of its message to the first one, either way; a number or
                        an array of one per microbatch

--order runs steps of your own in place of those of the schedule, as --order-out writes them and
traces/pipelines/1f1b-order.json shows: "ranks" lists the steps of each pipeline rank, F3 being the
forward of microbatch 3, B3 its backward, or I3 and W3 the input and weight parts of that; F3.1 is on the
rank's second chunk and F3.e on the encoder of encoder-in-bubbles. "placement", where ranks have chunks,
is round-robin, or v for down the ranks and up again.)";

}  // namespace

SimulateOutputs read_simulate_outputs(const Values& values) {
  return {read_output(values, "out"), read_output(values, "perfetto"), read_output(values, "order-out"),
          read_output(values, "html")};
}

void SimulateOutputs::write(std::span<const Timeline> iterations, const PipelineOrder& steps,
                            const std::optional<Explanation>& explanation,
                            const std::function<std::string(const Explanation&)>& make_page) const {
  StagedOutputs files;
  if (order) files.add(*order, to_json(steps));
  if (timeline) files.add(*timeline, to_json(TimelineFile{{iterations.begin(), iterations.end()}}));
  if (perfetto) {
    files.add(*perfetto, to_perfetto(iterations, kMostTraceEvents, path_slices(explanation)));
  }
  if (page && explanation) files.add(*page, make_page(*explanation));
  files.commit();
}

Command simulate_command() {
  Command command{
      .name = "simulate",
      .summary = "run a plan and its schedule, or a raw pipeline, in virtual time",
      .description = kSimulateDescription + listed(names_of(all_order_kinds())) + kRest,
      .example =
          "dflop simulate --plan plan.json --schedule schedule.json --out timeline.json --perfetto trace.json",
      .run = run_simulate,
  };
  command.options.add({
      {"plan", text("FILE"), "from 'dflop plan'"},
      {"schedule", text("FILE"), "from 'dflop schedule'"},
      {"pipeline", text("FILE"), "a raw pipeline, in place of a plan and its schedule"},
      {"order", text("FILE"), "run the steps of this file in place of the schedule's"},
      {"order-out", text("FILE"), "write the steps, of the first iteration, in the form of --order"},
      {"out", text("FILE"), "write the timeline of all iterations (.json, .json.gz)"},
      {"perfetto", text("FILE"), "write a trace of all iterations for ui.perfetto.dev (.json, .json.gz)"},
  });
  add_what_if_options(command.options);
  add_cluster_what_if_options(command.options);
  add_stage_gpu_option(command.options);
  add_explain_options(command.options);
  add_format_option(command.options);
  return command;
}

}  // namespace dflop
