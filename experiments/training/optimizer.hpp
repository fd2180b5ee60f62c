// This file configures the AdamW optimizer of a training run: learning-rate schedule, clipping, decay, and
// learning rates per module.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/model/parameter_store.hpp"
#include "core/names.hpp"

namespace dflop {

/// A RateKind says how the learning rate falls from its peak to its floor after the warm-up.
enum class RateKind : std::uint8_t {
  constant,  ///< constant at the peak
  linear,
  cosine,
  wsd,  ///< warm-up, stable, decay: stays at the peak until the last steps, then falls linearly (Hu et al.
        ///< 2024, MiniCPM)
};

template <>
inline constexpr NameTable<RateKind, 4> kNames<RateKind> = {{{RateKind::constant, "constant"},
                                                             {RateKind::linear, "linear"},
                                                             {RateKind::cosine, "cosine"},
                                                             {RateKind::wsd, "wsd"}}};

/// A RateSchedule gives the learning rate of each step.
struct RateSchedule {
  double peak = 1e-3;
  RateKind kind = RateKind::constant;
  std::int64_t warm_up = 0;  ///< number of steps in which the rate rises linearly to the peak
  std::int64_t decay = 0;    ///< for wsd: number of last steps, in which the rate falls
  double floor = 0;          ///< as a fraction of the peak
  std::int64_t steps = 1;    ///< number of training steps

  /// Returns the rate of a step, counting from 1. The last warm-up step and the step after it have the peak.
  /// A rate that falls would reach the floor in step `steps` + 1.
  double at(std::int64_t step) const;
};

/// An OptimizerChoice holds the user's optimizer settings.
struct OptimizerChoice {
  RateSchedule rate;
  OptimizerStep adamw;              ///< its learning rate and step come from `rate`
  std::optional<double> clip_norm;  ///< none: gradients are not clipped

  OptimizerStep at(std::int64_t step) const;
};

/// Rejects contradictory options. @throws Error (usage)
void check_optimizer(const OptimizerChoice& choice);

/// OptimizerSettings maps all optimizer options to their values.
using OptimizerSettings = std::map<std::string, std::string>;

/// Returns all settings of a choice; equal choices have equal text.
OptimizerSettings settings_of(const OptimizerChoice& choice);

/// Sets `choice` to the settings `before` of a resumed run, except for options that are `given` now. Returns
/// notes about the values it has set, and about given options that differ from `before`.
/// @throws Error (input) for an invalid value of an option
std::vector<std::string> keep_settings(const std::set<std::string>& given, const OptimizerSettings& before,
                                       OptimizerChoice& choice);

/// Returns all settings of a choice as a command line, "--beta1 0.9 --beta2 0.95 ..."; equal choices have
/// equal text.
std::string describe(const OptimizerChoice& choice);

/// Sets all settings from a text that describe() returned. @throws Error (input) for an invalid value of an
/// option
void take_description(const std::string& text, OptimizerChoice& choice);

}  // namespace dflop
