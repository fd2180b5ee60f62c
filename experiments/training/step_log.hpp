// A StepLogFile has a line of JSON for each step of a training run, for programs that watch or plot it.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "experiments/training/loop.hpp"

namespace dflop {

/// StepLogFiles are added to: a run that goes on writes behind what it wrote before. A line is in the file
/// when add() returns.
class StepLogFile {
 public:
  /// @throws Error (output) where the file cannot be opened
  explicit StepLogFile(const std::string& path);

  /// @throws Error (output) where the line cannot be written, as on a full disk
  void add(const TrainingStep& step);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// Returns the line of a step, without its end. Times are seconds; what is not known, or not finite, is null.
std::string step_line(const TrainingStep& step);

}  // namespace dflop
