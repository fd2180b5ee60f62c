#include "traces/tokens/space_marks.hpp"

namespace dflop {
namespace {

std::string replaced_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed;
  changed.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = text.find(from, at);
    changed += text.substr(at, found - at);
    if (found == std::string_view::npos) break;
    changed += to;
    at = found + from.size();
  }
  return changed;
}

}  // namespace

std::string SpaceMarks::marked(std::string_view text, TextPlace place) const {
  std::string changed = replaced_all(text, " ", kSpaceMark);
  const bool gets_mark = place != TextPlace::within &&
                         (before == Before::always || (before == Before::begin && place == TextPlace::begin));
  if (!gets_mark || text.empty() || (changed.starts_with(kSpaceMark) && !doubles)) return changed;
  return std::string(kSpaceMark) + changed;
}

void SpaceMarks::split(std::string_view text, std::vector<std::size_t>& ends) const {
  ends.clear();
  if (splits) {
    for (std::size_t at = text.find(kSpaceMark, 1); at < text.size(); at = text.find(kSpaceMark, at + 1))
      ends.push_back(at);
  }
  if (!text.empty()) ends.push_back(text.size());
}

std::string with_spaces(std::string_view token) {
  return replaced_all(token, kSpaceMark, " ");
}

}  // namespace dflop
