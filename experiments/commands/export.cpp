// dflop export writes a plan in the format of another program.
#include <fmt/format.h>

#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/plan_export.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

int run_export(const Values& values) {
  const auto wanted = read_text(values, "to");
  if (wanted) require_one_of("to", plan_form_names(), *wanted);
  const auto out = read_output(values, "out");
  const auto path = values["plan"].as<std::string>();
  const Plan plan = parse_plan(read_text_file(path), path);
  const Target target(plan.model, plan.cluster, path, {}, nullptr, Use::shape);
  validate(plan, target.model, target.cluster, path);
  const std::string text =
      exported_plan(plan, target.model, wanted.value_or(std::string(form_of(plan))), path);
  if (!out) {
    fmt::print("{}", text);
    return 0;
  }
  Provenance made_by = made_here(values, target);
  made_by.plan = origin_of(plan, path);
  std::string comments;
  for (const std::string& line : provenance_lines(made_by)) comments += "# " + printable(line) + '\n';
  write_file_atomically(*out, text + '\n' + comments);
  return 0;
}

}  // namespace

Command export_command() {
  Command command{
      .name = "export",
      .task = Task::plan,
      .summary = "write a plan in the form of another program",
      .description =
          R"(Writes a plan in the form that another program reads:
  megatron-lm    for uniform plans: the options of Megatron-LM's scripts as a shell array: parallelism, layers
                 of stages, batch sizes, recomputation, optimizer and gradient buckets
  megatron-mimo  for disaggregated plans: Python text for the MegatronMIMO recipes of Megatron-Bridge

Comments and standard error list what the form cannot express of the plan. Exit code 3 if the plan cannot run
in that form, with all reasons. 'dflop plan --export' does the same with a newly chosen plan.)",
      .example = "dflop export --plan traces/plans/llava-ov-llama3-8b-disaggregated.json --to megatron-mimo",
      .run = run_export,
      .has_format = false,
  };
  add_plan_option(command.options, text("FILE").required());
  command.options.add({
      {"to", text(joined(plan_form_names())), "form to write; default: the form for the plan's layout"},
  });
  command.options.add(OptionGroup::output,
                      {{"out", text("FILE"), "write to this file instead of standard output"}});
  return command;
}

}  // namespace dflop
