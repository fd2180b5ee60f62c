#include "core/units.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/error.hpp"

namespace dflop {

Nanoseconds to_nanoseconds(Seconds duration) {
  const auto refuse = [&](std::string_view expected) {
    throw Error(ErrorKind::internal,
                fmt::format("a duration must {}, found {:g} s", expected, duration.count()));
  };
  const double ns = std::round(duration.count() * 1e9);
  if (!std::isfinite(duration.count()) || ns < 0) refuse("be finite and not negative");
  if (ns >= 9.2e18) refuse("not be longer than 292 years");
  return Nanoseconds(static_cast<std::int64_t>(ns));
}

}  // namespace dflop
