// This file reads the log of a training run and draws its curves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// A LoggedStep holds those values of a log line that the curves show.
struct LoggedStep {
  std::int64_t step = 0;
  std::optional<double> loss;  ///< none if it was not finite
  std::optional<double> eval_loss;
  std::optional<double> iteration_s;
  std::optional<double> predicted_s;
};

/// Reads the lines of a log, one per step. If a step occurs several times, because a run resumed from an
/// earlier checkpoint, the last line counts. An incomplete last line, from a killed run, is ignored.
/// @throws Error (input) with file and line for a line that is not JSON or has no step, and for a log without
/// steps
std::vector<LoggedStep> parse_step_log(std::string_view text, const std::string& file);

/// Draws loss and time over steps, each with its running mean, and evaluations and predictions if there are
/// any.
std::string step_curves_svg(const std::vector<LoggedStep>& steps, const std::string& caption);

}  // namespace dflop
