// The optimizer of a training run is AdamW with what users set of it: how the learning rate goes with the
// steps, clipping, decay, and what each module takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/model/parameter_store.hpp"
#include "core/names.hpp"
#include "experiments/studies/options.hpp"

namespace dflop {

/// A RateKind says how the learning rate falls from its peak to its floor after the warm-up.
enum class RateKind : std::uint8_t {
  constant,  ///< not at all
  linear,
  cosine,
  wsd,  ///< warm-up, stable, decay: at the peak until the last steps, then linearly (Hu et al. 2024, MiniCPM)
};

template <>
inline constexpr NameTable<RateKind, 4> kNames<RateKind> = {{{RateKind::constant, "constant"},
                                                             {RateKind::linear, "linear"},
                                                             {RateKind::cosine, "cosine"},
                                                             {RateKind::wsd, "wsd"}}};

/// A RateSchedule is the learning rate of each step.
struct RateSchedule {
  double peak = 1e-3;
  RateKind kind = RateKind::constant;
  std::int64_t warm_up = 0;  ///< steps in which it rises linearly, of which the last has the peak
  std::int64_t decay = 0;    ///< of wsd: the last steps
  double floor = 0;          ///< a part of the peak
  std::int64_t steps = 1;    ///< of the training

  /// Returns the rate of a step from 1 on. The first step after the warm-up has the peak, and one after the
  /// last would have the floor.
  double at(std::int64_t step) const;
};

/// An OptimizerChoice is all that a user says of the optimizer.
struct OptimizerChoice {
  RateSchedule rate;
  OptimizerStep adamw;              ///< its learning rate and step are those of `rate`
  std::optional<double> clip_norm;  ///< none: gradients are not clipped

  OptimizerStep at(std::int64_t step) const;
};

void add_optimizer_options(Options& options);
/// Reads them, for a training of so many steps. @throws Error (usage)
OptimizerChoice read_optimizer(const Values& values, std::int64_t steps);
/// Refuses options that do not go together. @throws Error (usage)
void check_optimizer(const OptimizerChoice& choice);

/// OptimizerSettings are the values of all of the optimizer's options by their names.
using OptimizerSettings = std::map<std::string, std::string>;

/// Returns all that a choice says; equal choices have equal text.
OptimizerSettings settings_of(const OptimizerChoice& choice);

/// Gives the choice of a run that goes on what it had before, but for options that are given now. Returns
/// notes of what is kept although the usual is another, and of what changes.
/// @throws Error (input) for a value that is none of its option
std::vector<std::string> keep_settings(const Values& values, const OptimizerSettings& before,
                                       OptimizerChoice& choice);

/// Returns all that a choice says as options, "--beta1 0.9 --beta2 0.95 ..."; equal choices have equal text.
std::string describe(const OptimizerChoice& choice);

/// Sets what describe() has said. @throws Error (input) for a value that is none of its option
void take_description(const std::string& text, OptimizerChoice& choice);

}  // namespace dflop
