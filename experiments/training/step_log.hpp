// StepLogs records each step of a training run for programs that watch or plot it, as JSON lines and
// TensorBoard curves.
#pragma once

#include <optional>
#include <string>

#include "experiments/training/loop.hpp"
#include "traces/files/tensorboard.hpp"
#include "traces/text/growing_file.hpp"

namespace dflop {

/// StepLogs writes the logs that the user requested. When add() returns, the step is in the files.
class StepLogs {
 public:
  /// Makes an object that writes no logs.
  StepLogs() = default;
  /// Opens the JSON-lines file `lines`, to which a resumed run appends, and makes a new file in the folder
  /// `tensorboard`. Either may be absent.
  /// @throws Error (output) if they cannot be opened
  StepLogs(const std::optional<std::string>& lines, const std::optional<std::string>& tensorboard);

  /// Writes a step to all logs. @throws Error (output) if a log cannot be written, for example on a full disk
  void add(const TrainingStep& step);

 private:
  std::optional<GrowingFile> lines_;
  std::optional<EventFile> events_;
};

/// Returns the JSON line of a step, without a line end. Times are in seconds; unknown and non-finite values
/// are null.
std::string step_line(const TrainingStep& step);

/// Returns the TensorBoard values of a step, without the unknown ones.
std::vector<Scalar> step_scalars(const TrainingStep& step);

}  // namespace dflop
