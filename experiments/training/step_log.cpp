#include "experiments/training/step_log.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/error.hpp"

namespace dflop {
namespace {

std::string number_text(std::optional<double> value) {
  return value && std::isfinite(*value) ? fmt::format("{}", *value) : "null";
}

}  // namespace

std::string step_line(const TrainingStep& step) {
  const std::optional<double> predicted =
      step.predicted ? std::optional<double>(step.predicted->count()) : std::nullopt;
  return fmt::format(
      R"({{"step": {}, "loss": {}, "gradient_norm": {}, "learning_rate": {}, "iteration_s": {}, "llm_tokens": {}, )"
      R"("llm_tokens_per_s": {}, "idle_fraction": {}, "peak_memory_bytes": {}, "schedule_wait_s": {}, "predicted_s": {}}})",
      step.step, number_text(step.loss), number_text(step.gradient_norm), number_text(step.learning_rate),
      number_text(step.time.count()), step.llm_tokens, number_text(step.tokens_per_s()),
      number_text(step.idle_fraction), step.peak_memory.count, number_text(step.waited.count()),
      number_text(predicted));
}

StepLogFile::StepLogFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "ab")) {
  if (file_ == nullptr)
    throw Error(ErrorKind::output, std::string("cannot be opened: ") + std::strerror(errno), path);
}

void StepLogFile::add(const TrainingStep& step) {
  const std::string line = step_line(step) + '\n';
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    throw Error(ErrorKind::output, std::string("cannot be written: ") + std::strerror(errno), path_);
  }
}

}  // namespace dflop
