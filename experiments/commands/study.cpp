// dflop study reproduces the published evaluation.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/checks/paper/page.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/provenance_options.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::string_view kAll = "all";

std::vector<const StudyKind*> read_studies(const std::string& name) {
  std::vector<const StudyKind*> studies;
  std::vector<std::string_view> names = {kAll};
  for (const StudyKind& study : study_kinds()) {
    names.push_back(study.name);
    if (name == kAll || name == study.name) studies.push_back(&study);
  }
  require_one_of("study", names, name);
  return studies;
}

std::string listed_studies() {
  std::string lines;
  for (const StudyKind& study : study_kinds()) lines += fmt::format("  {:<17} {}\n", study.name, study.title);
  return lines;
}

int run_study(const Values& values) {
  const Format format = read_format(values);
  const std::vector<const StudyKind*> studies = read_studies(values["study"].as<std::string>());
  const auto out = values["out"].as<std::string>();
  const auto data = values["data-folder"].as<std::string>();
  check_output_directory(out, "report.html");
  const std::vector<StudyResult> results = run_studies(studies, CellStore(out, data), data);
  const Table claims = study_claims(results);
  const Table figures = study_figures(results);
  const auto json = [&] {
    nlohmann::ordered_json all;
    all["schema"] = "dflop.study";
    all["version"] = 1;
    all["claims"] = json_of(claims);
    all["figures"] = json_of(figures);
    return json_text(all);
  };
  const Provenance made_by = made_here(values);
  StagedOutputs files;
  files.add(out + "/report.html", study_page(made_by, results));
  files.add(out + "/figures.csv", to_csv(figures));
  files.add(out + "/claims.csv", to_csv(claims));
  files.add(out + "/study.json", with_provenance(json(), made_by));
  files.commit();
  say("dflop: wrote {}: report.html, figures.csv, claims.csv, study.json\n", out);
  print_result(
      format, [&] { return terminal_text(claims); }, json, claims);
  return 0;
}

}  // namespace

Command study_command() {
  Command command{
      .name = "study",
      .task = Task::check,
      .summary = "reproduce the published evaluation, statement by statement",
      .description =
          "Runs studies of the published evaluation in the simulator, each under all settings of --setting:\n" +
          listed_studies() +
          R"(Prints published statements next to the same figures from the simulator, each with a verdict
(reproduced, partly or not reproduced), and where the time goes. The page has pictures and all figures. The
output folder keeps finished cells: after an interrupted run, run the same command again to run only the
missing cells. Empty the folder after the program changes. Planning and scheduling times are measured, and an
ILP's result depends on what it finds in its second, so both differ from run to run.)",
      .example = "dflop study --study idle --out out/study",
      .run = run_study,
  };
  std::string names(kAll);
  for (const StudyKind& study : study_kinds()) names += fmt::format("|{}", study.name);
  command.options.add({
      {"study", text(names, std::string(kAll)).common(), "study to run"},
      {"out", text("DIR").required(),
       "write report.html, figures.csv, claims.csv, study.json and cells/ to this folder"},
      {"data-folder", text("DIR", "traces/datasets"), "folder of the data sets, such as paper_mix.csv"},
  });
  return command;
}

}  // namespace dflop
