// This file reports a training run to the user: a line while it runs, then a table and a summary.
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

/// Returns a table with a row for each step, without the columns that these options leave empty.
Table step_table(const std::vector<TrainingStep>& steps, const TrainingOptions& options);

/// Prints the step times of a run on standard error. It leaves out `first_step`, a warm-up step. `others` is
/// the fraction of the machine's processor time that other processes used.
void say_summary(const std::vector<TrainingStep>& steps, std::int64_t first_step,
                 const std::optional<double>& others);

}  // namespace dflop
