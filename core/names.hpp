// This header gives enums names. Each enum has a table in its header, from which to_string(), from_string()
// and lists of names follow.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// A NamedValue is one value of an enum and its name in files, options and tables.
template <typename Enum>
struct NamedValue {
  Enum value;
  std::string_view name;
};

/// A NameTable has the names of an enum, in listing order. The enum's header specializes kNames:
/// template <> inline constexpr NameTable<Color, 2> kNames<Color> = {{{Color::red, "red"}, ...}};
template <typename Enum, std::size_t N>
using NameTable = std::array<NamedValue<Enum>, N>;

template <typename Enum>
inline constexpr NameTable<Enum, 0> kNames{};

template <typename Enum>
concept Named = !kNames<Enum>.empty();

template <Named Enum>
constexpr std::string_view to_string(Enum value) {
  for (const NamedValue<Enum>& row : kNames<Enum>) {
    if (row.value == value) return row.name;
  }
  return "?";
}

/// Returns the value with this name; nullopt if there is none.
template <Named Enum>
constexpr std::optional<Enum> from_string(std::string_view name) {
  for (const NamedValue<Enum>& row : kNames<Enum>) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

/// Returns all values of an enum, in the order of their table.
template <Named Enum>
std::vector<Enum> all_of() {
  std::vector<Enum> values;
  for (const NamedValue<Enum>& row : kNames<Enum>) values.push_back(row.value);
  return values;
}

/// Returns the names of these values.
template <typename Enum>
std::vector<std::string_view> names_of(const std::vector<Enum>& values) {
  std::vector<std::string_view> names;
  for (const Enum value : values) names.push_back(to_string(value));
  return names;
}

/// Returns the names as a list for texts: "a, b or c".
inline std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

/// Returns "a, b or c" for all values of an enum.
template <Named Enum>
std::string listed() {
  return listed(names_of(all_of<Enum>()));
}

}  // namespace dflop
