// Whether measured times are this process's own doing.
#pragma once

#include <optional>

namespace dflop {

/// Watches what else the machine does while it lives.
class HostLoad {
 public:
  HostLoad();

  /// The part of the machine's processor time since the beginning that others have taken: other processes,
  /// and of a virtual machine its host. To about a percent of a second. Nothing where the system does not
  /// say.
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

}  // namespace dflop
