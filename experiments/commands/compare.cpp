// dflop compare measures data-aware plans beside the best data-blind ones, on the same global batches.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "experiments/charts/charts.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/studies/comparison.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/studies/what_if.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

std::string throughput_bars(const std::vector<System>& systems) {
  double best = 0;
  for (const System& system : systems) {
    if (system.evaluation) best = std::max(best, system.evaluation->samples_per_s);
  }
  constexpr double kRow = 24;
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='{:.0f}' font-family='sans-serif' "
      "font-size='13' fill='#333'>",
      kRow * static_cast<double>(systems.size()));
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const double y = kRow * static_cast<double>(i);
    const double throughput = systems[i].evaluation ? systems[i].evaluation->samples_per_s : 0;
    const double width = best > 0 ? 600 * throughput / best : 0;
    out += fmt::format("<text x='190' y='{:.0f}' text-anchor='end'>{}</text>", y + 16,
                       html_escaped(systems[i].name));
    out += fmt::format("<rect x='200' y='{:.0f}' width='{:.1f}' height='17' fill='#4c78a8'/>", y + 3, width);
    out += systems[i].evaluation ? fmt::format("<text x='{:.1f}' y='{:.0f}'>{:.2f} samples/s</text>",
                                               208 + width, y + 16, throughput)
                                 : fmt::format("<text x='208' y='{:.0f}'>infeasible</text>", y + 16);
  }
  return out + "</svg>";
}

/// Returns a page with the table, throughput bars and the first iteration of every system on one time scale.
std::string comparison_page(const Values& values, const Provenance& made_by,
                            const std::vector<System>& systems, const Table& table) {
  std::string out =
      html_lines(provenance_lines(made_by)) +
      fmt::format("<div class='scroll'><pre>{}</pre></div>\n",
                  html_escaped(comparison_text(table, [](const Table& t) { return to_text(t); })));
  for (const std::string& note : infeasible_notes(systems))
    out += fmt::format("<p>{}</p>\n", html_escaped(note));
  out += "<h2>Throughput</h2>\n<div class='scroll'>" + throughput_bars(systems) +
         "</div>\n<h2>First iteration, one time scale</h2>\n";
  Nanoseconds end{0};
  for (const System& system : systems) {
    if (system.evaluation) end = std::max(end, system.evaluation->timelines.front().makespan);
  }
  out += "<div class='scroll'>" + timeline_legend_svg() + "</div>\n";
  for (const System& system : systems) {
    if (!system.evaluation) continue;
    out += fmt::format("<h3>{}: {}</h3>\n<div class='scroll'>{}</div>\n", html_escaped(system.name),
                       html_escaped(describe(*system.planned.plan)),
                       timeline_svg(system.evaluation->timelines.front(), end));
  }
  return html_page(
      fmt::format("{} on {}", values["model"].as<std::string>(), values["cluster"].as<std::string>()), out);
}

/// Returns the command's options and one object per system, with its plan.
std::string comparison_json(const Values& values, const std::vector<System>& systems, const Table& table) {
  nlohmann::ordered_json out;
  out["schema"] = "dflop.compare";
  out["version"] = 1;
  out["options"] = nlohmann::ordered_json::parse(options_json(values));
  // What was not given of the plans is each planner's, and stands in its plan.
  Options of_plans;
  add_plan_options(of_plans);
  for (const Option& option : of_plans.rows()) {
    if (values[option.name].defaulted() && option.name != "setting") out["options"].erase(option.name);
  }
  out["systems"] = json_of(table);
  for (std::size_t i = 0; i < systems.size(); ++i) {
    nlohmann::ordered_json& system = out["systems"][i];
    system["plan_description"] = system["plan"];
    system["plan"] = nullptr;
    system["infeasible_reason"] = nullptr;
    if (systems[i].planned.plan)
      system["plan"] = nlohmann::ordered_json::parse(to_json(*systems[i].planned.plan));
    if (!systems[i].evaluation) system["infeasible_reason"] = systems[i].planned.infeasible_reason;
  }
  return json_text(out);
}

/// Writes all files or none.
void write_outputs(const std::string& directory, const Values& values, const Provenance& made_by,
                   const std::vector<System>& systems, const Table& table) {
  make_output_directory(directory);
  const std::filesystem::path base = directory;
  StagedOutputs files;
  for (const System& system : systems) {
    if (!system.evaluation) continue;
    const Evaluation& e = *system.evaluation;
    files.add(base / (system.name + ".plan.json"), with_provenance(to_json(*system.planned.plan), made_by));
    Provenance of_schedule = made_by;
    of_schedule.plan = origin_of(*system.planned.plan, system.name + ".plan.json");
    files.add(base / (system.name + ".schedule.json"),
              with_provenance(to_json(system.schedule), of_schedule));
    files.add(base / (system.name + ".trace.json.gz"), to_perfetto(std::span(e.timelines).first(1)));
  }
  files.add(base / "compare.json", with_provenance(comparison_json(values, systems, table), made_by));
  files.add(base / "compare.csv", to_csv(table));
  files.add(base / "report.html", comparison_page(values, made_by, systems, table));
  files.commit();
  say("dflop: wrote {}: report.html, compare.json, compare.csv; per system .plan.json, .schedule.json and "
      ".trace.json.gz (first iteration, open in ui.perfetto.dev)\n",
      directory);
}

std::optional<Training> read_training(const Values& values) {
  if (values.count("train-samples") == 0) {
    refuse_given(values, {"gpu-hour-cost", "gpu-power-w"}, "needs '--train-samples'");
    return std::nullopt;
  }
  Training training;
  training.samples = static_cast<double>(read_integer(values, "train-samples", 1, 1'000'000'000'000'000));
  if (values.count("gpu-hour-cost") > 0)
    training.gpu_hour_cost = read_number(values, "gpu-hour-cost", 0, 1e6);
  if (values.count("gpu-power-w") > 0) training.gpu_power_w = read_number(values, "gpu-power-w", 0, 1e6);
  return training;
}

/// Reports planning times. They are measured, so they are no part of the result, which every machine has
/// alike.
void report_planning(const std::vector<System>& systems, const std::optional<Training>& training) {
  for (const System& system : systems) {
    say("dflop: {}: planned in {:.2f} s, {} configurations", system.name, system.planning.count(),
        system.planned.candidates);
    if (training && system.evaluation) {
      say(", {:.2g} % of the run", 100 * (system.planning / training_time(system, *training)));
    }
    say("\n");
  }
}

/// Returns a line for each system.
std::string listed_systems() {
  std::string lines;
  for (const SystemKind& kind : system_kinds()) lines += fmt::format("  {:<23}{}\n", kind.name, kind.what);
  return lines;
}

/// Returns the systems that are asked for; those of --plan come before the search.
std::vector<System> read_systems(const Values& values, const Target& target, const ComparisonInput& input) {
  const SchedulerChoice scheduler = read_scheduler(values);
  const auto names = read_text(values, "systems");
  std::vector<System> systems = systems_to_compare(
      names ? split(*names, ',') : std::vector<std::string_view>{}, scheduler, input.search);
  const auto files = read_text(values, "plan");
  if (!files) return systems;
  std::vector<System> own = own_systems(split(*files, ','), target, input.gbs, scheduler, systems);
  const auto searches = std::ranges::find_if(systems, &System::is_search);
  systems.insert(searches, std::move_iterator(own.begin()), std::move_iterator(own.end()));
  return systems;
}

int run_compare(const Values& values) {
  const Format format = read_format(values);
  const std::optional<Training> training = read_training(values);
  const auto out = read_text(values, "out");
  ComparisonInput input;
  input.gbs = read_gbs(values);
  input.seed = read_seed(values);
  input.options = read_plan_options(values);
  input.search = read_search_options(values);
  if (has_chunks(input.options.order)) {
    refuse_value("pipeline-schedule", "a schedule of one stage a rank, which all systems can have",
                 std::string(to_string(input.options.order)));
  }
  const int iterations = read_iterations(values, input.gbs);
  const OutlierDelay delay = read_delay(values, input.gbs);
  const Target target(values["model"].as<std::string>(), values["cluster"].as<std::string>(), "",
                      read_link_changes(values));
  note_gpu_types(target.cluster);
  note_trained(input.options.trained, target.model);
  std::vector<System> systems = read_systems(values, target, input);
  input.search.seeds = read_seed_plans(values, target, input.gbs);
  DataOrigin data;
  input.samples = read_samples(values, target.model, input.seed, "data", &data);
  input.batches = make_batches(input.samples, input.gbs, iterations, input.seed, delay, target.model, data);
  if (out) check_output_directory(*out, "report.html");

  run_systems(systems, target, input);
  report_planning(systems, training);
  Table table = comparison_table(systems);
  if (training) add_training_columns(table, systems, *training, target.cluster.gpus());
  if (out) write_outputs(*out, values, made_here(values, target, data), systems, table);
  const auto json = [&] { return comparison_json(values, systems, table); };
  const auto text = [&] { return comparison_text(table, terminal_text); };
  print_result(format, text, json, table);
  for (const std::string& note : infeasible_notes(systems)) say("dflop: {}\n", note);
  const bool any =
      std::any_of(systems.begin(), systems.end(), [](const System& s) { return s.evaluation.has_value(); });
  return any ? 0 : 3;
}

}  // namespace

Command compare_command() {
  Command command{
      .name = "compare",
      .summary = "data-aware plans beside the best data-blind ones",
      .description =
          "Plans with each system, schedules the same global batches and simulates them:\n" +
          listed_systems() +
          R"(Microbatches of the baselines and optimizers alone are random. pytorch and megatron are the best of all their
configurations on these very batches. What is free to choose is said below the table; an option that fixes
schedule, recomputation, placement or gradient buckets fixes it for all rows.
gap is how far the schedule's largest bin may be from the best possible, and status how it was found;
p95 is over iterations; MFU leaves recomputation out; idle is the mean over ranks; x is the speedup.)",
      .example =
          "dflop compare --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b "
          "--cluster a100-80g:4 --gbs 512 --iterations 8 --seed 1",
      .run = run_compare,
  };
  add_data_options(command.options);
  add_target_options(command.options);
  add_link_options(command.options);
  add_batch_options(command.options);
  add_delay_options(command.options, "needed, as all systems have the same batches");
  add_plan_options(command.options);
  add_search_options(command.options);
  add_scheduler_options(command.options);
  add_scheduler_command_options(command.options);
  command.options.add({
      {"systems", text("LIST"), "only these, separated by commas, as pytorch,dflop,search"},
      {"plan", text("FILE[,FILE]"), "plans of your own as further rows, filled by --scheduler"},
      {"train-samples", whole("N"),
       "also say what training on N samples takes: hours, GPU-hours and, on standard error, the share of "
       "planning"},
      {"gpu-hour-cost", number("C"), "and costs, at C a GPU-hour"},
      {"gpu-power-w", number("W"), "and draws, at W watts a GPU"},
      {"out", text("DIR"),
       "write report.html, compare.json, compare.csv and each system's plan, schedule and trace"},
  });
  return command;
}

}  // namespace dflop
