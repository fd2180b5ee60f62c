#include "experiments/options/profile_options.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string>

#include "experiments/options/shared_options.hpp"

namespace dflop {

void add_profile_option(Options& options) {
  add_profile_file_option(options);
  add_kernels_file_option(options, text("FILE"));
}

std::optional<NamedProfile> read_profile(const Values& values) {
  const auto path = read_text(values, "profile");
  if (!path && values.count("kernels-file") > 0) {
    refuse_option("kernels-file", "needs '--profile FILE'");
  }
  if (!path) return std::nullopt;
  NamedProfile profile = read_named_profile(*path);
  const auto kernels = read_text(values, "kernels-file");
  if (kernels) take_kernels(profile, *kernels);
  return profile;
}

bool read_extrapolate(const Values& values) {
  const bool extrapolate = values["extrapolate"].as<bool>();
  if (extrapolate && values.count("profile") == 0) refuse_option("extrapolate", "needs '--profile FILE'");
  return extrapolate;
}

bool read_foreign_profile(const Values& values) {
  const bool foreign = values["foreign-profile"].as<bool>();
  if (foreign && values.count("profile") == 0) refuse_option("foreign-profile", "needs '--profile FILE'");
  return foreign;
}

std::vector<TpMode> read_tp_modes(const Values& values) {
  const bool sequence_parallel = !values["no-sequence-parallel"].as<bool>();
  std::set<TpMode> modes;
  for (const std::int64_t tp : values["tp"].as<std::vector<std::int64_t>>()) {
    if (tp < 1 || tp > kMaxTp) {
      refuse_value("tp", fmt::format("whole numbers from 1 to {}", kMaxTp), std::to_string(tp));
    }
    modes.insert(tp_mode(static_cast<int>(tp), sequence_parallel));
  }
  return {modes.begin(), modes.end()};
}

}  // namespace dflop
