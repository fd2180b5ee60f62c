// Settings hold the values of the options of a plan that are not given (--setting).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"

namespace dflop {

/// A Setting holds the options that all plans of a study share unless an option overrides them.
struct Setting {
  std::string_view name;
  std::string_view what;  ///< description for --help
  PlanOptions options = {};
  bool is_fixed = false;                   ///< treats all parts as given, so planners do not choose them
  std::optional<BinOrder> bin_order = {};  ///< for schedulers that take the user's options; none: the
                                           ///< scheduler's default
};

/// Returns the settings of --setting, the default first.
std::span<const Setting> settings();
/// Returns a setting by name. @throws Error (usage) if there is none.
const Setting& find_setting(const std::string& name);

/// Returns the choices open to planners under a setting: everything, or only its own values if those are
/// fixed.
SearchOptions open_choices(const Setting& setting);

}  // namespace dflop
