// dflop train plot draws the log of a training run.
#include <filesystem>

#include "experiments/cli/command.hpp"
#include "experiments/cli/picture.hpp"
#include "experiments/training/log_curves.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

Table log_table(const std::vector<LoggedStep>& steps) {
  const LoggedStep& first = steps.front();
  const LoggedStep& last = steps.back();
  return {{{"first_step", "first step"},
           {"last_step", "last"},
           {"steps", "steps"},
           {"first_loss", "first loss", 4},
           {"last_loss", "last", 4}},
          {{first.step, last.step, steps.size(), first.loss, last.loss}}};
}

int run_plot_log(const Values& values) {
  const Format format = read_format(values);
  const std::string out = read_picture_output(values, "out");
  const auto file = values["log"].as<std::string>();
  const std::vector<LoggedStep> steps = parse_step_log(read_text_file(file), file);
  const std::string svg = step_curves_svg(steps, std::filesystem::path(file).filename().string());
  write_file_atomically(out, as_picture(svg, out));
  print_table(log_table(steps), format);
  return 0;
}

}  // namespace

Command train_plot_command() {
  Command command{
      .name = "train plot",
      .task = Task::run,
      .summary = "draw the curves of a training run's log",
      .description =
          R"(Draws the log of 'dflop train --log': the loss, with the losses of evaluations, and the time of
each step, with the predicted time if the run had a profile; each curve also has its mean over a fiftieth of
the run. The run may still be in progress.)",
      .example = "dflop train plot --log run.jsonl --out run.svg",
      .run = run_plot_log,
  };
  command.options.add({
      {"log", text("FILE").required(), "log file, from 'dflop train --log'"},
      {"out", text("FILE").required(), "picture to write, as SVG, PNG or PDF, by file extension"},
  });
  return command;
}

}  // namespace dflop
