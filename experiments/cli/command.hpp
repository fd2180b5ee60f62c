// A Command is a subcommand of `dflop`: its options are declared once and drive parsing, --help and
// docs/cli.md.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/option_values.hpp"

namespace dflop {

struct Command {
  std::string name;
  std::string summary;               ///< one line
  std::string description;           ///< what it does and prints
  std::string example;               ///< works as printed
  int (*run)(const Values& values);  ///< returns the exit code
  bool has_format = true;            ///< whether it prints a result; then --format is its last option
  Options options{};
};

Command compare_command();
Command data_command();
Command import_command();
Command partition_command();
Command plan_command();
Command export_command();
Command schedule_command();
Command check_command();
Command serve_command();
Command simulate_command();
Command replay_command();
Command profile_command();
Command train_command();
Command train_plot_command();
Command generate_command();
Command kernels_command();
Command kernels_tune_command();
Command kernels_check_command();
Command kernels_explain_command();
Command kernels_compare_command();
Command fidelity_command();
Command verify_command();
Command sweep_command();
Command sweep_export_command();
Command sweep_plot_command();
Command sweep_report_command();
Command study_command();
Command correction_command();
Command validate_command();
Command calibrate_command();
Command models_command();
Command clusters_command();
Command devices_command();
Command manual_command();
Command completion_command();

/// Returns all commands in the order of the manual.
std::vector<Command> commands();

/// Returns the --help text of one command.
std::string help_text(const Command& command);

/// Returns the text of docs/cli.md.
std::string manual_text();

/// Runs `dflop` with these arguments (without the program's name) and returns the exit code; errors go to
/// stderr.
int run_dflop(const std::vector<std::string>& arguments);

}  // namespace dflop
