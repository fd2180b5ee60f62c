#include "core/support/did_you_mean.hpp"

#include <algorithm>
#include <cstddef>

namespace dflop {
namespace {

constexpr std::size_t kLongest = 100;  // max compared letters of a name

constexpr std::size_t kMinBeginning = 3;  // min letters that count as the beginning of a name

/// Returns the min number of typing mistakes between two names: the optimal string alignment distance.
std::size_t mistakes(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before;  // of a's first i - 2 letters, and the first j of b
  std::vector<std::size_t> last(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> now(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t wrong = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + wrong});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = std::move(last);
    last = std::move(now);
  }
  return last.back();
}

}  // namespace

std::string did_you_mean(std::string_view found, const std::vector<std::string_view>& known) {
  if (found.size() > kLongest) return "";
  // A user who types only the beginning of a name means the shortest name that begins with it: "a100" is not
  // a mistyped "h100".
  std::string_view longer;
  for (const std::string_view name : known) {
    if (found.size() < kMinBeginning || !name.starts_with(found)) continue;
    if (longer.empty() || name.size() < longer.size()) longer = name;
  }
  if (!longer.empty()) return "; did you mean '" + std::string(longer) + "'?";
  std::string_view nearest;
  std::size_t least = found.size() / 3 + 1;
  for (const std::string_view name : known) {
    const std::size_t count = mistakes(found, name);
    if (count >= least) continue;
    least = count;
    nearest = name;
  }
  return nearest.empty() ? "" : "; did you mean '" + std::string(nearest) + "'?";
}

}  // namespace dflop
