// Two types with the same name in two files are invisible to the compiler, and the linker merges the template
// functions of both: vectors are freed wrongly. This test finds such types.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace dflop::testing {
namespace one_definition_test {

namespace fs = std::filesystem;

/// Returns the types that a source in the project's style defines in namespace dflop, at the beginning of
/// lines. Types in unnamed namespaces are local to the file.
std::vector<std::string> defined_types(std::istream& source) {
  static const std::regex definition(R"(^(?:struct|class|enum class) (\w+)(?: final)?(?: : .*)? ?\{.*)");
  std::vector<std::string> types;
  bool own = false;
  std::smatch match;
  for (std::string line; std::getline(source, line);) {
    if (line == "namespace {") own = true;
    if (line == "}  // namespace") own = false;
    if (!own && std::regex_match(line, match, definition)) types.push_back(match[1]);
  }
  return types;
}

using Sources = std::map<std::string, std::string>;  // text by path

Sources read_sources() {
  Sources sources;
  for (const char* room :
       {"core", "traces", "kernels", "costmodel", "solver", "sim", "backend", "experiments"}) {
    const fs::path folder = fs::path(DFLOP_SOURCE_DIR) / room;
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".hpp" && extension != ".cpp") continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      sources[entry.path().lexically_relative(DFLOP_SOURCE_DIR).generic_string()] = text.str();
    }
  }
  return sources;
}

/// Returns "Name: file and file" for each type that is defined twice.
std::vector<std::string> defined_twice(const Sources& sources) {
  std::map<std::string, std::string> first;
  std::vector<std::string> twice;
  for (const auto& [path, text] : sources) {
    std::istringstream source(text);
    for (const std::string& type : defined_types(source)) {
      const auto [known, fresh] = first.emplace(type, path);
      if (!fresh) twice.push_back(type + ": " + known->second + " and " + path);
    }
  }
  return twice;
}

TEST(OneDefinition, TypesHaveNamesOfTheirOwn) {
  const Sources sources = read_sources();
  EXPECT_TRUE(sources.count("solver/load_pipeline.hpp") > 0) << "the scan must find the tree";
  EXPECT_EQ(defined_twice(sources), std::vector<std::string>{});
}

TEST(OneDefinition, SeesTypesOfTheSameName) {
  const std::vector<std::string> twice = {"Load: a.hpp and b.cpp"};
  EXPECT_EQ(defined_twice({{"a.hpp", "struct Load {\n"}, {"b.cpp", "class Load final : public A {\n"}}),
            twice);
  EXPECT_EQ(defined_twice({{"a.hpp", "struct Load;\n"}, {"b.cpp", "struct Load {\n"}}),
            std::vector<std::string>{});
  EXPECT_EQ(defined_twice({{"a.hpp", "struct Load {\n"}, {"b.cpp", "namespace {\nstruct Load {\n"}}),
            std::vector<std::string>{});
  EXPECT_EQ(defined_twice(
                {{"a.hpp", "struct Load {\n"}, {"b.cpp", "namespace {\n}  // namespace\nstruct Load {\n"}}),
            twice);
}

}  // namespace one_definition_test
}  // namespace dflop::testing
