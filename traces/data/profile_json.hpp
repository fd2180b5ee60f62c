// Data profiles on disk: schema "dflop.data_profile", version 1.
#pragma once

#include <string>
#include <string_view>

#include "traces/data/profile.hpp"

namespace dflop {

/// `data` and `model` name what was profiled.
std::string to_json(const DataProfile& profile, const std::string& data, const std::string& model);

struct DataProfileFile {
  std::string data;
  std::string model;
  DataProfile profile;
};

/// @throws Error (input) naming the key, also where counts do not add up or quantiles do not rise.
DataProfileFile parse_data_profile(std::string_view json, const std::string& file);

}  // namespace dflop
