// A Setting (--setting) holds values for the plan options that the user does not give.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"

namespace dflop {

/// A Setting holds a named set of plan options. Single options override its values.
struct Setting {
  std::string_view name;
  std::string_view what;  ///< description for --help
  PlanOptions options = {};
  bool is_fixed = false;  ///< whether planners must use all values as if the user had given them
  std::optional<BinOrder> bin_order = {};  ///< for schedulers that take the user's options; none: the
                                           ///< scheduler's default
};

/// Returns the settings of --setting, the default first.
std::span<const Setting> settings();
/// Returns a setting by name. @throws Error (usage) if there is none.
const Setting& find_setting(const std::string& name);

/// Returns the search options under a setting: if it is fixed, planners may use only its values; else they
/// choose.
SearchOptions open_choices(const Setting& setting);

}  // namespace dflop
