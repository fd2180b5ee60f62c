// This file shows a training run to people: a line while it runs, a table and a summary at its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "experiments/cli/table.hpp"
#include "experiments/training/loop.hpp"

namespace dflop {

/// A TrainingLine shows the newest step on standard error, at most once a second. On a terminal each line
/// replaces the previous one.
class TrainingLine {
 public:
  explicit TrainingLine(std::int64_t last_step);
  ~TrainingLine();
  TrainingLine(const TrainingLine&) = delete;

  void update(const TrainingStep& step);

 private:
  std::int64_t last_step_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// Returns a row for each step. Columns that the run's options leave empty are absent.
Table step_table(const std::vector<TrainingStep>& steps, const TrainingOptions& options);

/// Prints the step times of a run on standard error, without its first step, which warms up. `others` is the
/// fraction of the machine's processor time that other processes used.
void say_summary(const std::vector<TrainingStep>& steps, std::int64_t first_step,
                 const std::optional<double>& others);

}  // namespace dflop
