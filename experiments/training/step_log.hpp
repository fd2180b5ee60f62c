// StepLogs records each step of a training run for programs that watch or plot it, as JSON lines and
// TensorBoard curves.
#pragma once

#include <optional>
#include <string>

#include "experiments/training/loop.hpp"
#include "traces/files/tensorboard.hpp"
#include "traces/text/growing_file.hpp"

namespace dflop {

/// StepLogs writes the logs that the user requested. A step is in their files when add() returns.
class StepLogs {
 public:
  /// Makes an object without logs.
  StepLogs() = default;
  /// Opens a file of lines, to which a resumed run appends, and a new TensorBoard file in a folder.
  /// @throws Error (output) if they cannot be opened
  StepLogs(const std::optional<std::string>& lines, const std::optional<std::string>& tensorboard);

  /// Writes a step to all logs. @throws Error (output) if it cannot, for example on a full disk
  void add(const TrainingStep& step);

 private:
  std::optional<GrowingFile> lines_;
  std::optional<EventFile> events_;
};

/// Returns the line of a step, without its line end. Times are in seconds; unknown and non-finite values are
/// null.
std::string step_line(const TrainingStep& step);

/// Returns the known curve values of a step.
std::vector<Scalar> step_scalars(const TrainingStep& step);

}  // namespace dflop
