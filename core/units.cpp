#include "core/units.hpp"

#include <cmath>

#include "core/error.hpp"

namespace dflop {

Nanoseconds to_nanoseconds(Seconds duration) {
  const double ns = std::round(duration.count() * 1e9);
  if (!(ns >= 0.0 && ns < 9.2e18)) {
    throw Error(ErrorKind::internal, "a duration must be finite and not negative, found " +
                                         std::to_string(duration.count()) + " s");
  }
  return Nanoseconds(static_cast<std::int64_t>(ns));
}

}  // namespace dflop
