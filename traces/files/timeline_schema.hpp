// What the writer and the reader of timeline files share.
#pragma once

#include <string_view>
#include <vector>

namespace dflop {

inline constexpr std::string_view kTimelineSchema = "dflop.timeline";
inline constexpr int kTimelineVersion = 2;

/// All values of an enumeration whose values count up from 0.
template <typename Enum>
std::vector<Enum> all_values(int count) {
  std::vector<Enum> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<Enum>(i));
  return values;
}

}  // namespace dflop
