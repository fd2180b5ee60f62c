// The log of a training run is read again, to be drawn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// A LoggedStep has of a line of the log what curves show.
struct LoggedStep {
  std::int64_t step = 0;
  std::optional<double> loss;  ///< none where it was not finite
  std::optional<double> eval_loss;
  std::optional<double> iteration_s;
  std::optional<double> predicted_s;
};

/// Reads the lines of a log, each of a step. Of a step that stands there several times,
/// as a run went on from an earlier checkpoint, the last line counts. A last line without its end is that of
/// a run that was killed, and is passed over.
/// @throws Error (input) with file and line for what is no JSON or has no step, and for a log without steps
std::vector<LoggedStep> parse_step_log(std::string_view text, const std::string& file);

/// Draws loss and time over steps, each with its running mean, evaluations and predictions where there are
/// some.
std::string step_curves_svg(const std::vector<LoggedStep>& steps, const std::string& caption);

}  // namespace dflop
