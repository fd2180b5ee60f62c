// A Command is a subcommand of `dflop`. It declares its options once, for parsing, --help and docs/cli.md
// (help.hpp).
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// A Task is a purpose of commands. `dflop --help` lists the commands under headings for the tasks.
enum class Task : std::uint8_t { plan, explain, run, check, data, tools };

template <>
inline constexpr NameTable<Task, 6> kNames<Task> = {{
    {Task::plan, "Plan"},
    {Task::explain, "Explain"},
    {Task::run, "Run on devices"},
    {Task::check, "Check predictions"},
    {Task::data, "Data and presets"},
    {Task::tools, "Tools"},
}};

struct Command {
  std::string name;  ///< one word, or a noun and a word, such as "sweep export"
  Task task;
  std::string summary;               ///< one line
  std::string description;           ///< what it does and prints; help wraps its paragraphs and lists
  std::string example;               ///< works as printed
  int (*run)(const Values& values);  ///< returns the exit code
  bool has_format = true;  ///< whether it prints a result and therefore has --format, as the last option
  Options options{};
  std::string old_name{};  ///< name in the previous version, which still works and stays in JSON output

  /// Returns the first word of the name, under which the overview lists it.
  std::string noun() const { return name.substr(0, name.find(' ')); }
};

Command compare_command();
Command data_command();
Command import_command();
Command partition_command();
Command plan_command();
Command export_command();
Command schedule_command();
Command check_schedule_command();
Command serve_command();
Command simulate_command();
Command replay_command();
Command profile_command();
Command train_command();
Command train_plot_command();
Command generate_command();
Command kernels_tune_command();
Command sweep_command();
Command sweep_export_command();
Command sweep_plot_command();
Command sweep_report_command();
Command study_command();
Command correction_command();
Command check_published_command();
Command check_runs_command();
Command check_difference_command();
Command calibrate_command();
Command models_command();
Command clusters_command();
Command devices_command();
Command manual_command();
Command completion_command();

/// Returns all commands in the order of the manual.
std::vector<Command> commands();

/// Runs `dflop` with these arguments (without the program's name) and returns the exit code; errors go to
/// stderr.
int run_dflop(const std::vector<std::string>& arguments);

}  // namespace dflop
