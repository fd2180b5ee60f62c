// StepLogs have each step of a training run, for programs that watch or plot it: lines of JSON, TensorBoard's
// curves.
#pragma once

#include <optional>
#include <string>

#include "experiments/training/loop.hpp"
#include "traces/files/tensorboard.hpp"
#include "traces/text/growing_file.hpp"

namespace dflop {

/// StepLogs are as many as the user asked for. A step is in their files when add() returns.
class StepLogs {
 public:
  /// Has no logs.
  StepLogs() = default;
  /// Opens a file of lines, to which a run that goes on adds, and a new file in a folder for TensorBoard.
  /// @throws Error (output) where they cannot be opened
  StepLogs(const std::optional<std::string>& lines, const std::optional<std::string>& tensorboard);

  /// @throws Error (output) where a step cannot be written, as on a full disk
  void add(const TrainingStep& step);

 private:
  std::optional<GrowingFile> lines_;
  std::optional<EventFile> events_;
};

/// Returns the line of a step, without its end. Times are seconds; what is not known, or not finite, is null.
std::string step_line(const TrainingStep& step);

/// Returns the curves' values of a step; those that are known.
std::vector<Scalar> step_scalars(const TrainingStep& step);

}  // namespace dflop
