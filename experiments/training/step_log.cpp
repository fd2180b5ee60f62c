#include "experiments/training/step_log.hpp"

#include <fmt/format.h>

#include <cmath>

namespace dflop {
namespace {

/// A StepFigure is one figure of a step, with its names in a line and in TensorBoard.
struct StepFigure {
  const char* key;
  const char* tag;
  std::optional<double> (*of)(const TrainingStep&);
};

std::optional<double> seconds(const std::optional<Seconds>& time) {
  return time ? std::optional<double>(time->count()) : std::nullopt;
}

using Figure = std::optional<double>;

constexpr StepFigure kFigures[] = {
    {"loss", "train/loss", [](const TrainingStep& s) { return Figure(s.loss); }},
    {"eval_loss", "eval/loss", [](const TrainingStep& s) { return s.eval_loss; }},
    {"gradient_norm", "train/gradient_norm", [](const TrainingStep& s) { return s.gradient_norm; }},
    {"learning_rate", "train/learning_rate", [](const TrainingStep& s) { return Figure(s.learning_rate); }},
    {"iteration_s", "speed/iteration_s", [](const TrainingStep& s) { return seconds(s.time); }},
    {"step_to_step_s", "speed/step_to_step_s", [](const TrainingStep& s) { return seconds(s.step_to_step); }},
    {"between_steps_s", "speed/between_steps_s",
     [](const TrainingStep& s) { return seconds(s.between_steps()); }},
    {"predicted_s", "speed/predicted_s", [](const TrainingStep& s) { return seconds(s.predicted); }},
    {"llm_tokens_per_s", "speed/llm_tokens_per_s",
     [](const TrainingStep& s) { return Figure(s.tokens_per_s()); }},
    {"mfu", "speed/mfu", [](const TrainingStep& s) { return s.mfu; }},
    {"idle_fraction", "speed/idle_fraction", [](const TrainingStep& s) { return Figure(s.idle_fraction); }},
    {"schedule_wait_s", "speed/schedule_wait_s", [](const TrainingStep& s) { return seconds(s.waited); }},
    {"data_wait_s", "speed/data_wait_s", [](const TrainingStep& s) { return seconds(s.data_waited); }},
    {"eval_s", "speed/eval_s", [](const TrainingStep& s) { return seconds(s.eval_time); }},
    {"peak_memory_bytes", "memory/peak_bytes",
     [](const TrainingStep& s) { return Figure(static_cast<double>(s.peak_memory.count)); }},
    {"samples", "batch/samples",
     [](const TrainingStep& s) { return Figure(static_cast<double>(s.samples)); }},
    {"encoder_tokens", "batch/encoder_tokens",
     [](const TrainingStep& s) { return Figure(static_cast<double>(s.encoder_tokens)); }},
    {"llm_tokens", "batch/llm_tokens",
     [](const TrainingStep& s) { return Figure(static_cast<double>(s.llm_tokens)); }},
};

std::string figure_text(const Figure& value) {
  return value && std::isfinite(*value) ? fmt::format("{}", *value) : "null";
}

}  // namespace

std::string step_line(const TrainingStep& step) {
  std::string line = fmt::format("{{\"step\": {}", step.step);
  for (const StepFigure& figure : kFigures) {
    line += fmt::format(", \"{}\": {}", figure.key, figure_text(figure.of(step)));
  }
  return line + "}";
}

std::vector<Scalar> step_scalars(const TrainingStep& step) {
  std::vector<Scalar> scalars;
  for (const StepFigure& figure : kFigures) {
    if (const Figure value = figure.of(step)) scalars.push_back({figure.tag, *value});
  }
  return scalars;
}

StepLogs::StepLogs(const std::optional<std::string>& lines, const std::optional<std::string>& tensorboard) {
  if (lines) lines_.emplace(*lines, GrowingFile::Mode::append);
  if (tensorboard) events_.emplace(*tensorboard);
}

void StepLogs::add(const TrainingStep& step) {
  if (lines_) lines_->add(step_line(step) + '\n');
  if (events_) events_->add(step.step, step_scalars(step));
}

}  // namespace dflop
