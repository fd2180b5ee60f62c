// This file configures the AdamW optimizer of a training run: learning-rate schedule, clipping, decay, and
// rates for each module.
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
  std::int64_t warm_up = 0;  ///< steps in which it rises linearly; the last one has the peak
  std::int64_t decay = 0;    ///< for wsd: number of last steps
  double floor = 0;          ///< fraction of the peak
  std::int64_t steps = 1;    ///< number of training steps

  /// Returns the rate of a step, counting from 1. The first step after the warm-up has the peak, and the
  /// first step after the last would have the floor.
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

/// Restores the previous settings of a resumed run, except for options that are `given` now. Returns notes
/// about restored values that differ from the defaults, and about changes.
/// @throws Error (input) for an invalid value of an option
std::vector<std::string> keep_settings(const std::set<std::string>& given, const OptimizerSettings& before,
                                       OptimizerChoice& choice);

/// Returns all settings of a choice as options, "--beta1 0.9 --beta2 0.95 ..."; equal choices have equal
/// text.
std::string describe(const OptimizerChoice& choice);

/// Sets the values from describe()'s text. @throws Error (input) for an invalid value of an option
void take_description(const std::string& text, OptimizerChoice& choice);

}  // namespace dflop
