#include "core/units.hpp"

#include <cmath>
#include <sstream>

#include "core/error.hpp"

namespace dflop {
namespace {

[[noreturn]] void refuse(const char* expected, Seconds duration) {
  std::ostringstream message;  // std::to_string would write 1e300 s in full
  message << "a duration must " << expected << ", found " << duration.count() << " s";
  throw Error(ErrorKind::internal, message.str());
}

}  // namespace

Nanoseconds to_nanoseconds(Seconds duration) {
  const double ns = std::round(duration.count() * 1e9);
  if (!std::isfinite(duration.count()) || ns < 0) refuse("be finite and not negative", duration);
  if (ns >= 9.2e18) refuse("not be longer than 292 years", duration);
  return Nanoseconds(static_cast<std::int64_t>(ns));
}

}  // namespace dflop
