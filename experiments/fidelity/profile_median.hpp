// One profile from several of the same model and device.
#pragma once

#include <vector>

#include "traces/files/profile.hpp"

namespace dflop {

/// The medians of the times of the points that all have, of the lines' coefficients, and the rest of the
/// first. @pre there is one, and all are of the same model, device and tp
ProfileTables median_profile(const std::vector<ProfileTables>& profiles);

}  // namespace dflop
