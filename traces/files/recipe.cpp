#include "traces/files/recipe.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <set>
#include <sstream>

#include "core/error.hpp"

namespace dflop {
namespace {

[[noreturn]] void refuse_line(const std::string& file, int line, const std::string& message) {
  throw Error(ErrorKind::input, message, fmt::format("{}:{}", file, line));
}

int line_of(const YAML::Mark& mark) {
  return mark.line + 1;
}

std::vector<std::string> recipe_values(const YAML::Node& node, const std::string& key, int line,
                                       const std::string& file) {
  const auto refuse = [&](const char* found) {
    refuse_line(file, line,
                fmt::format("key '{}': expected a value or a list of values, found {}", key, found));
  };
  if (node.IsMap()) refuse("a map");
  if (node.IsNull()) refuse("nothing");
  if (node.IsScalar()) return {node.Scalar()};
  std::vector<std::string> values;
  for (const YAML::Node& one : node) {
    if (!one.IsScalar()) refuse("a list that contains a list or map");
    values.push_back(one.Scalar());
  }
  if (values.empty()) refuse("an empty list");
  return values;
}

/// NoEvents discards the events of a document, to move past it.
class NoEvents final : public YAML::EventHandler {
 public:
  using Style = YAML::EmitterStyle::value;
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, Style) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, Style) override {}
  void OnMapEnd() override {}
};

/// Reads the only document. YAML::LoadAll() is unsuitable: it never ends on a text that begins with a comma.
YAML::Node only_document(const std::string& text, const std::string& file) {
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    NoEvents nothing;
    parser.HandleNextDocument(nothing);
    if (parser) refuse_line(file, 1, "expected one document, found more after it");
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    refuse_line(file, line_of(error.mark), "not YAML or JSON: " + error.msg);
  }
}

}  // namespace

std::vector<RecipeEntry> parse_recipe(const std::string& text, const std::string& file) {
  const YAML::Node root = only_document(text, file);
  if (!root.IsMap()) refuse_line(file, 1, "expected a map of options, such as 'steps: 10'");
  std::vector<RecipeEntry> entries;
  std::set<std::string> known;
  std::size_t bytes = 0;
  for (const auto& member : root) {
    const int line = line_of(member.first.Mark());
    if (!member.first.IsScalar()) refuse_line(file, line, "expected the name of an option as key");
    RecipeEntry entry{member.first.Scalar(), {}, line};
    if (!known.insert(entry.key).second) {
      refuse_line(file, line, fmt::format("key '{}' occurs twice", entry.key));
    }
    entry.values = recipe_values(member.second, entry.key, line, file);
    for (const std::string& value : entry.values) bytes += value.size() + 1;
    if (bytes > text.size()) refuse_line(file, line, "aliases expand to more text than the file has");
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace dflop
