#include "experiments/training/optimizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <sstream>
#include <utility>

#include "core/refuse.hpp"
#include "experiments/cli/option_values.hpp"

namespace dflop {
namespace {

const std::string kClipNorm = "clip-norm";  // an option's name
const std::string kSteps = "steps";
const std::string kNone = "none";

std::string as_option(const std::string& option, const std::string& value) {
  return fmt::format("--{} {}", option, value);
}

template <typename Number>
Number number_of(const std::string& option, const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(static_cast<double>(number)))
    refuse_input("", "optimizer of a checkpoint: expected a number for {}, found '{}'", option, text);
  return number;
}

/// Sets an option to its value in settings_of().
void set_option(OptimizerChoice& choice, const std::string& option, const std::string& text) {
  auto& [rate, adamw, clip_norm] = choice;
  const std::pair<std::string_view, double*> numbers[] = {{"learning-rate", &rate.peak},
                                                          {"rate-floor", &rate.floor},
                                                          {"beta1", &adamw.beta1},
                                                          {"beta2", &adamw.beta2},
                                                          {"epsilon", &adamw.epsilon},
                                                          {"weight-decay", &adamw.weight_decay},
                                                          {"encoder-rate", &adamw.rates.encoder},
                                                          {"connector-rate", &adamw.rates.connector},
                                                          {"llm-rate", &adamw.rates.llm}};
  for (const auto& [name, number] : numbers) {
    if (name == option) *number = number_of<double>(option, text);
  }
  if (option == "warm-up") rate.warm_up = number_of<std::int64_t>(option, text);
  if (option == "decay-steps") rate.decay = number_of<std::int64_t>(option, text);
  if (option == "rate-schedule") {
    const std::optional<RateKind> kind = from_string<RateKind>(text);
    if (!kind) refuse_input("", "optimizer of a checkpoint: expected a {}, found '{}'", option, text);
    rate.kind = *kind;
  }
  if (option == kClipNorm)
    clip_norm = text == kNone ? std::optional<double>() : number_of<double>(option, text);
}

}  // namespace

double RateSchedule::at(std::int64_t step) const {
  if (step <= warm_up) return peak * static_cast<double>(step) / static_cast<double>(warm_up);
  const std::int64_t begin = kind == RateKind::wsd ? std::max(warm_up, steps - decay) : warm_up;
  const auto length = static_cast<double>(std::max<std::int64_t>(1, steps - begin));
  const double done = std::clamp(static_cast<double>(step - 1 - begin) / length, 0.0, 1.0);
  const double least = floor * peak;
  switch (kind) {
    case RateKind::constant:
      return peak;
    case RateKind::linear:
    case RateKind::wsd:
      return peak + (least - peak) * done;
    case RateKind::cosine:
      return least + (peak - least) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
  return peak;
}

OptimizerStep OptimizerChoice::at(std::int64_t step) const {
  OptimizerStep of_step = adamw;
  of_step.learning_rate = rate.at(step);
  of_step.step = step;
  return of_step;
}

void check_optimizer(const OptimizerChoice& choice) {
  const RateSchedule& rate = choice.rate;
  if (rate.floor > 0 && rate.kind == RateKind::constant)
    refuse_option("rate-floor", "needs a --rate-schedule other than constant, whose rate falls");
  if (rate.decay > 0 && rate.kind != RateKind::wsd) refuse_option("decay-steps", "needs --rate-schedule wsd");
  if (rate.decay == 0 && rate.kind == RateKind::wsd)
    refuse_option("rate-schedule", "wsd falls in its last steps and needs --decay-steps N");
}

OptimizerSettings settings_of(const OptimizerChoice& choice) {
  const auto& [rate, adamw, clip_norm] = choice;
  const auto number = [](double value) { return fmt::format("{}", value); };
  return {{"learning-rate", number(rate.peak)},
          {"rate-schedule", std::string(to_string(rate.kind))},
          {"warm-up", fmt::format("{}", rate.warm_up)},
          {"decay-steps", fmt::format("{}", rate.decay)},
          {"rate-floor", number(rate.floor)},
          {"beta1", number(adamw.beta1)},
          {"beta2", number(adamw.beta2)},
          {"epsilon", number(adamw.epsilon)},
          {"weight-decay", number(adamw.weight_decay)},
          {"encoder-rate", number(adamw.rates.encoder)},
          {"connector-rate", number(adamw.rates.connector)},
          {"llm-rate", number(adamw.rates.llm)},
          {kSteps, fmt::format("{}", rate.steps)},
          {kClipNorm, clip_norm ? number(*clip_norm) : kNone}};
}

std::vector<std::string> keep_settings(const std::set<std::string>& given, const OptimizerSettings& before,
                                       OptimizerChoice& choice) {
  std::vector<std::string> kept;
  std::vector<std::string> notes;
  for (const auto& [option, value] : settings_of(choice)) {
    const auto was = before.find(option);
    if (was == before.end() || was->second == value || option == kSteps) continue;
    if (given.contains(option)) {
      notes.push_back(
          fmt::format("the run continues with {}; it had {} before", as_option(option, value), was->second));
    } else {
      set_option(choice, option, was->second);
      kept.push_back(as_option(option, was->second));
    }
  }
  if (!kept.empty()) notes.push_back(fmt::format("the run keeps {}", fmt::join(kept, ", ")));
  const auto steps = before.find(kSteps);
  if (choice.rate.kind != RateKind::constant && steps != before.end() &&
      steps->second != std::to_string(choice.rate.steps)) {
    notes.push_back(fmt::format("the {} learning rate now falls until step {}; it was {} before",
                                to_string(choice.rate.kind), choice.rate.steps, steps->second));
  }
  return notes;
}

std::string describe(const OptimizerChoice& choice) {
  std::string all;
  for (const auto& [option, value] : settings_of(choice)) {
    if (!all.empty()) all += ' ';
    all += as_option(option, value);
  }
  return all;
}

void take_description(const std::string& text, OptimizerChoice& choice) {
  std::istringstream words(text);
  for (std::string option, value; words >> option >> value;) set_option(choice, option.substr(2), value);
}

}  // namespace dflop
