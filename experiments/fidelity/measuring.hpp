// Measured times are made trustworthy here: what else the machine does is watched, and profiles are repeated.
#pragma once

#include <optional>
#include <vector>

#include "core/measured/profile.hpp"

namespace dflop {

/// A HostLoad watches what else the machine does while it lives.
class HostLoad {
 public:
  HostLoad();

  /// Returns the part of the machine's processor time since the beginning that others have taken: other
  /// processes, and of a virtual machine its host. To about a percent of a second. Nothing where the system
  /// does not say.
  std::optional<double> others() const;

 private:
  struct Ticks {
    double all = 0;
    double idle = 0;
    double own = 0;  ///< of this process
  };
  static std::optional<Ticks> read();

  std::optional<Ticks> begin_;
};

/// Returns a profile of the medians of the times of the points that all have, of the lines' coefficients, and
/// the rest of the first. @pre there is one, and all are of the same model, device and tp
ProfileTables median_profile(const std::vector<ProfileTables>& profiles);

}  // namespace dflop
