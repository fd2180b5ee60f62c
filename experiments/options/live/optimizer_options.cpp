#include "experiments/options/live/optimizer_options.hpp"

#include <cstdint>

#include "experiments/options/shared_options.hpp"

namespace dflop {
namespace {

constexpr double kMaxRate = 1000;
constexpr std::int64_t kMaxRateSteps = std::int64_t{1} << 40;
constexpr double kMaxBeta = 1 - 1e-9;

}  // namespace

void add_optimizer_options(Options& options) {
  options.add(
      OptionGroup::optimizer,
      {
          {"learning-rate", number("R", 0.01).common(), "peak learning rate of AdamW"},
          {"rate-schedule", text(joined<RateKind>(), "constant"),
           "how the learning rate falls after the warm-up (wsd: only in the last --decay-steps steps)"},
          {"warm-up", whole("N", 0), "steps in which the learning rate rises from 0"},
          {"decay-steps", whole("N", 0), "number of last steps in which wsd lowers the learning rate"},
          {"rate-floor", number("FRACTION", 0), "final learning rate, as a fraction of the peak"},
          {"beta1", number("B", 0.9), "beta1 of AdamW"},
          {"beta2", number("B", 0.95), "beta2 of AdamW"},
          {"epsilon", number("E", 1e-8), "epsilon of AdamW"},
          {"weight-decay", number("D", 0), "weight decay of matrices and tables; biases and norms have none"},
          {"encoder-rate", number("FRACTION", 1),
           "learning rate of the encoder, as a fraction of --learning-rate; 0 freezes it"},
          {"connector-rate", number("FRACTION", 1),
           "learning rate of the connector, as a fraction of --learning-rate; 0 freezes it"},
          {"llm-rate", number("FRACTION", 1),
           "learning rate of the LLM, as a fraction of --learning-rate; 0 freezes it"},
          {"clip-norm", number("NORM"),
           "max norm of the gradients over all parameters; larger gradients are scaled to it; 0: never; "
           "default: 1 for plans that clip gradients, else never"},
      });
}

OptimizerChoice read_optimizer(const Values& values, std::int64_t steps) {
  OptimizerChoice choice;
  choice.rate.peak = read_number(values, "learning-rate", 0, kMaxRate);
  choice.rate.kind = read_named<RateKind>(values, "rate-schedule");
  choice.rate.warm_up = read_integer(values, "warm-up", 0, kMaxRateSteps);
  choice.rate.decay = read_integer(values, "decay-steps", 0, kMaxRateSteps);
  choice.rate.floor = read_number(values, "rate-floor", 0, 1);
  choice.rate.steps = steps;
  choice.adamw.beta1 = read_number(values, "beta1", 0, kMaxBeta);
  choice.adamw.beta2 = read_number(values, "beta2", 0, kMaxBeta);
  choice.adamw.epsilon = read_number(values, "epsilon", 1e-30, 1);
  choice.adamw.weight_decay = read_number(values, "weight-decay", 0, kMaxRate);
  choice.adamw.rates.encoder = read_number(values, "encoder-rate", 0, kMaxRate);
  choice.adamw.rates.connector = read_number(values, "connector-rate", 0, kMaxRate);
  choice.adamw.rates.llm = read_number(values, "llm-rate", 0, kMaxRate);
  const double clip = values.count("clip-norm") > 0 ? read_number(values, "clip-norm", 0, 1e12) : 0;
  if (clip > 0) choice.clip_norm = clip;
  return choice;
}

}  // namespace dflop
