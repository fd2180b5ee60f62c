#include "experiments/training/run_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "experiments/cli/say.hpp"

namespace dflop {

TrainingLine::TrainingLine(std::int64_t last_step)
    : last_step_(last_step), terminal_(::isatty(STDERR_FILENO) == 1) {}

TrainingLine::~TrainingLine() {
  if (drawn_ && terminal_) say("\n");
}

void TrainingLine::update(const TrainingStep& step) {
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && step.step < last_step_ && !step.eval_loss && now - last_ < std::chrono::seconds(1)) return;
  last_ = now;
  drawn_ = true;
  say("{}step {}/{}  loss {:.4f}  {:.0f} tokens/s  {:.3f} s{}  idle {:.1f} %{}{}", terminal_ ? "\r" : "",
      step.step, last_step_, step.loss, step.tokens_per_s(), step.time.count(),
      step.step_to_step ? fmt::format(", {:.3f} s from step to step", step.step_to_step->count()) : "",
      100 * step.idle_fraction, step.eval_loss ? fmt::format("  eval loss {:.4f}", *step.eval_loss) : "",
      terminal_ ? "\x1b[K" : "\n");
}

Table step_table(const std::vector<TrainingStep>& steps, const TrainingOptions& options) {
  Table table;
  table.columns = {{"step", "step"},
                   {"loss", "loss", 4},
                   {"iteration_s", "s", 4},
                   {"step_to_step_s", "step to step s", 4},
                   {"llm_tokens_per_s", "tokens/s", 0},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "peak MiB", 1, 0x1p-20},
                   {"schedule_wait_s", "waited ms", 2, 1e3}};
  if (options.profile) {
    table.columns.push_back({"predicted_s", "predicted s", 4});
    table.columns.push_back({"extrapolated_fraction", "beyond profile %", 1, 100});
  }
  if (options.correct) table.columns.push_back({"tracked", "tracked"});
  if (options.held_out != nullptr) table.columns.push_back({"eval_loss", "eval loss", 4});
  for (const TrainingStep& s : steps) {
    std::vector<Cell>& row = table.rows.emplace_back(std::vector<Cell>{
        s.step, s.loss, s.time, s.step_to_step, s.tokens_per_s(), s.idle_fraction, s.peak_memory, s.waited});
    if (options.profile) row.insert(row.end(), {s.predicted, s.extrapolated_fraction});
    if (options.correct) row.push_back(s.tracked);
    if (options.held_out != nullptr) row.push_back(s.eval_loss);
  }
  return table;
}

void say_summary(const std::vector<TrainingStep>& steps, std::int64_t first_step,
                 const std::optional<double>& others) {
  if (steps.empty()) return;
  const std::size_t warm_up = steps.size() > 1 ? 1 : 0;
  std::vector<double> times;
  double tokens = 0;
  double to_next = 0;  // from step to step
  for (std::size_t i = warm_up; i < steps.size(); ++i) {
    times.push_back(steps[i].time.count());
    to_next += steps[i].step_to_step.value_or(Seconds(0)).count();
    tokens += static_cast<double>(steps[i].llm_tokens);
  }
  const auto count = static_cast<double>(times.size());
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  const double mean = sum / count;
  double squares = 0;
  for (const double time : times) squares += (time - mean) * (time - mean);
  std::sort(times.begin(), times.end());
  const double p95 = nearest_rank(times, 0.95);
  const double spread = times.size() > 1 ? std::sqrt(squares / (count - 1)) / mean : 0;
  say("dflop: steps {} to {}: {:.4f} s in the mean, {:.4f} s at the 95th percentile, spread {:.1f} %, {:.0f} tokens/s{}{}\n",
      first_step + static_cast<std::int64_t>(warm_up), steps.back().step, mean, p95, 100 * spread,
      tokens / sum,
      warm_up > 0
          ? fmt::format("; {:.4f} s from step to step, {:.0f} tokens/s", to_next / count, tokens / to_next)
          : "",
      others ? fmt::format("; other processes took {:.1f} % of the machine's time", 100 * *others) : "");
}

}  // namespace dflop
