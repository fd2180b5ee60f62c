// This test keeps rooms and their wings separate: includes only go down, vendors' headers stay in their
// places, and neither files nor folders grow without a reason. docs/architecture.md has the map.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace dflop::testing {
namespace include_arrows_test {

namespace fs = std::filesystem;

/// A source holds one class or one theme. A longer source must be listed in kLongFiles with its reason.
constexpr int kMaxLines = 800;
const std::set<std::string> kLongFiles = {};

/// A folder with more sources than this needs wings.
constexpr int kMaxSources = 34;

/// A room and the other rooms that it may include.
struct Room {
  std::string_view name;
  std::string_view below;  ///< separated by blanks
};

/// A wing, which is a folder of a room, and the other wings of the same room that it may include. "." stands
/// for the files in the room's own folder.
struct Wing {
  std::string_view room;
  std::string_view name;
  std::string_view below;  ///< separated by blanks
};

constexpr Room kRooms[] = {
    {"core", ""},
    {"traces", "core"},
    {"kernels", "core"},
    {"costmodel", "core traces"},
    {"solver", "core traces costmodel"},
    {"sim", "core traces costmodel"},
    {"backend", "core traces kernels costmodel"},
    {"experiments", "core traces kernels costmodel solver sim backend"},
};

constexpr Wing kWings[] = {
    {"core", ".", ""},
    {"core", "support", "."},
    {"core", "content", "."},
    {"core", "measured", "."},
    {"core", "kernel_choice", ". support measured"},
    {"core", "order", ". support"},
    {"core", "program", ". support order"},
    {"core", "iteration", ". support order program"},
    {"traces", "text", ""},
    {"traces", "data", "text"},
    {"traces", "preprocess", "data"},
    {"traces", "files", "text data preprocess"},
    {"traces", "families", "text"},
    {"traces", "profiler", "text files"},
    {"traces", "weights", "text"},
    {"traces", "checkpoints", "text weights"},
    {"traces", "media", "text preprocess"},
    {"traces", "tokens", "text"},
    {"traces", "shards", "text weights"},
    {"traces", "dataset", "text media tokens shards"},
    {"costmodel", ".", ""},
    {"costmodel", "analytic", "."},
    {"costmodel", "profiled", "."},
    {"costmodel", "recorded", ". analytic"},
    {"costmodel", "correction", ". analytic"},
    {"solver", ".", ""},
    {"solver", "bins", "."},
    {"solver", "makespan", ". bins"},
    {"solver", "plan_problem", ". bins makespan"},
    {"solver", "schedulers", ". bins makespan plan_problem"},
    {"solver", "service", ". schedulers"},
    {"solver", "planners/trials", ". plan_problem schedulers"},
    {"solver", "planners/uniform", ". plan_problem planners/trials"},
    {"solver", "planners/expected", ". plan_problem schedulers"},
    {"solver", "planners/published", ". plan_problem"},
    {"solver", "planners/disttrain", ". plan_problem schedulers"},
    {"solver", "planners/mimo", ". plan_problem planners/trials"},
    {"solver", "planners/search",
     ". plan_problem schedulers planners/trials planners/uniform planners/expected planners/published"},
    {"solver", "planners",
     "planners/trials planners/uniform planners/expected planners/published planners/disttrain "
     "planners/mimo planners/search"},
    {"sim", "network", ""},
    {"sim", ".", "network"},
    {"sim", "analysis", "."},
    {"kernels", ".", ""},
    {"kernels", "host", "."},
    {"kernels", "cuda", "."},
    {"backend", ".", ""},
    {"backend", "host", "."},
    {"backend", "process", "."},
    {"backend", "cuda", ". host"},
    {"backend", "nccl", ". process cuda"},
    {"backend", "model", "."},
    {"backend", "content", "model"},
    {"backend", "run", ". host process cuda nccl model"},
    {"backend", "profile", ". host model"},
    {"experiments", "cli", ""},
    {"experiments", "presets", ""},
    {"experiments", "charts", ""},
    {"experiments", "studies", "cli presets"},
    {"experiments", "studies/what_if", "cli presets studies"},
    {"experiments", "trust", "cli presets charts studies studies/what_if"},
    {"experiments", "options", "cli presets studies studies/what_if trust"},
    {"experiments", "sweep", "cli presets charts studies studies/what_if trust options"},
    {"experiments", "training", "cli presets charts studies"},
    {"experiments", "options/live", "cli options training"},
    {"experiments", "checks/published", "cli presets studies"},
    {"experiments", "checks/runs", "cli charts studies studies/what_if training"},
    {"experiments", "checks/paper", "cli presets charts studies"},
    {"experiments", "reports", "cli charts studies"},
    {"experiments", "serve", "studies"},
    {"experiments", "commands",
     "cli presets charts studies studies/what_if trust options sweep training options/live checks/published "
     "checks/runs checks/paper reports serve"},
    {"experiments", "examples", "cli presets studies"},
    {"experiments", ".", "cli"},
};

/// The wings of experiments/ that run models live. Only they may include backend/: a simulation needs no
/// device.
const std::set<std::string> kLiveWings = {"training", "options/live", "checks/runs", "commands", "examples"};

/// The files that may include COIN headers: one for integer programs, one for linear ones.
const std::set<std::string> kCoinFiles = {"solver/bins/ilp.cpp", "solver/makespan/bound.cpp"};

struct SourceFile {
  std::string path;  ///< from the root: "sim/engine.cpp"
  std::string text;
};

const Room* find_room(std::string_view name) {
  const auto room =
      std::find_if(std::begin(kRooms), std::end(kRooms), [&](const Room& r) { return r.name == name; });
  return room == std::end(kRooms) ? nullptr : room;
}

std::string first_folder(const std::string& path) {
  return path.substr(0, path.find('/'));
}

std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

bool has_word(std::string_view words, const std::string& word) {
  std::istringstream in{std::string(words)};
  for (std::string name; in >> name;) {
    if (name == word) return true;
  }
  return false;
}

bool may_include(const Room& room, const std::string& other) {
  return room.name == other || has_word(room.below, other);
}

/// The wing of a path: "planners/search" of "solver/planners/search/space.hpp", "." of "sim/engine.hpp".
std::string wing_of(const std::string& path) {
  const std::string folder = path.substr(0, path.find_last_of('/'));
  const std::size_t slash = folder.find('/');
  return slash == std::string::npos ? "." : folder.substr(slash + 1);
}

const Wing* find_wing(std::string_view room, std::string_view name) {
  const auto wing = std::find_if(std::begin(kWings), std::end(kWings),
                                 [&](const Wing& w) { return w.room == room && w.name == name; });
  return wing == std::end(kWings) ? nullptr : wing;
}

/// Returns the error of an include within the same room, if any.
std::optional<std::string> check_wings(const SourceFile& file, const Room& room, const std::string& header) {
  const std::string own = wing_of(file.path);
  const std::string other = wing_of(header);
  const Wing* wing = find_wing(room.name, own);
  if (wing == nullptr) return "the wing " + own + " of " + std::string(room.name) + "/ is not in kWings";
  if (own == other || has_word(wing->below, other)) return std::nullopt;
  return "the wing " + own + " may not include " + header;
}

bool is_cuda_header(const std::string& header) {
  static const std::regex names(
      "(cuda.*|cu|nccl.*|cublas.*|cub/.*|cooperative_groups|mma|nvtx3/.*)\\.(h|hpp|cuh)");
  return std::regex_match(header, names);
}

bool is_coin_header(const std::string& header) {
  static const std::regex names("(Cbc|Clp|Osi|Coin|Cgl)[A-Za-z0-9_]*\\.(h|hpp)");
  return std::regex_match(file_name(header), names);
}

std::string join_names(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " and ") + name;
  return text;
}

/// Returns the error of one include of `file`, if any.
std::optional<std::string> check_include(const SourceFile& file, const Room& room, const std::string& header,
                                         bool quoted) {
  const bool may_see_devices = room.name == "kernels" || room.name == "backend";
  if (is_cuda_header(header)) {
    if (may_see_devices) return std::nullopt;
    return "CUDA header " + header + " outside kernels/ and backend/";
  }
  if (is_coin_header(header)) {
    if (kCoinFiles.count(file.path) > 0) return std::nullopt;
    return "COIN header " + header + " outside " + join_names(kCoinFiles);
  }
  const std::string other = first_folder(header);
  if (find_room(other) == nullptr || header.find('/') == std::string::npos) {
    if (!quoted) return std::nullopt;
    return "\"" + header + "\" is not of the form \"room/file.hpp\"";
  }
  if (!may_include(room, other)) return std::string(room.name) + "/ may not include " + header;
  if (file.path == header) return "includes itself";
  if (room.name == "experiments" && other == "backend" && kLiveWings.count(wing_of(file.path)) == 0)
    return "the wing " + wing_of(file.path) + " may not include " + header + ", as it runs nothing live";
  if (other == room.name) return check_wings(file, room, header);
  return std::nullopt;
}

/// Returns the violations of one file, as "file:line: what".
std::vector<std::string> check_file(const SourceFile& file) {
  static const std::regex include_line("^\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");
  const Room& room = *find_room(first_folder(file.path));
  std::vector<std::string> violations;
  std::istringstream lines(file.text);
  std::string line;
  int number = 0;
  bool guarded = false;
  while (std::getline(lines, line)) {
    ++number;
    guarded = guarded || line == "#pragma once";
    std::smatch match;
    if (!std::regex_match(line, match, include_line)) continue;
    const std::string header = match[2];
    const auto wrong = check_include(file, room, header, match[1] == "\"");
    if (wrong) violations.push_back(file.path + ":" + std::to_string(number) + ": " + *wrong);
  }
  if (fs::path(file.path).extension() == ".hpp" && !guarded) {
    violations.push_back(file.path + ":1: header without #pragma once");
  }
  if (number > kMaxLines && kLongFiles.count(file.path) == 0) {
    violations.push_back(file.path + ":" + std::to_string(number) + ": longer than " +
                         std::to_string(kMaxLines) + " lines, and not in kLongFiles");
  }
  return violations;
}

std::vector<std::string> check_tree(const std::vector<SourceFile>& files) {
  std::vector<std::string> violations;
  for (const SourceFile& file : files) {
    const auto wrong = check_file(file);
    violations.insert(violations.end(), wrong.begin(), wrong.end());
  }
  std::map<std::string, int> sources;  // by folder
  for (const SourceFile& file : files) ++sources[file.path.substr(0, file.path.find_last_of('/'))];
  for (const auto& [folder, count] : sources) {
    if (count > kMaxSources)
      violations.push_back(folder + ": " + std::to_string(count) + " sources; make wings");
  }
  return violations;
}

/// Returns all C++ and CUDA sources of the rooms, ordered by path.
std::vector<SourceFile> read_tree(const fs::path& root) {
  const std::set<std::string> extensions = {".hpp", ".h", ".cuh", ".cpp", ".cu"};
  std::vector<SourceFile> files;
  for (const Room& room : kRooms) {
    if (!fs::exists(root / room.name)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / room.name)) {
      if (extensions.count(entry.path().extension().string()) == 0) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      files.push_back({entry.path().lexically_relative(root).generic_string(), text.str()});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(IncludeArrows, TheTreeKeepsThem) {
  const std::vector<SourceFile> files = read_tree(DFLOP_SOURCE_DIR);
  // An empty scan would also pass, so the most basic rooms must be present.
  for (const std::string path : {"core/program.hpp", "sim/engine.cpp", "solver/planners/search/space.hpp"}) {
    EXPECT_TRUE(std::any_of(files.begin(), files.end(), [&](const SourceFile& f) { return f.path == path; }))
        << path;
  }
  const std::vector<std::string> violations = check_tree(files);
  EXPECT_TRUE(violations.empty()) << join(violations);
}

/// Checks one invented file.
std::vector<std::string> check(const std::string& path, const std::string& text) {
  return check_file({path, text});
}

using Lines = std::vector<std::string>;

/// Returns the part of a page from its heading `## title` to the next heading of that level, or an empty
/// string if there is none.
std::string section_of(const std::string& page, const std::string& title) {
  const std::size_t begin = page.find("\n## " + title + "\n");
  if (begin == std::string::npos) return "";
  return page.substr(begin, page.find("\n## ", begin + 1) - begin);
}

/// Returns the wings of the table whose names are missing in the section "Wings" of a page. Each must be in
/// backticks in the row of its room; nested wings are listed by their last names, and "." as the room.
Lines wings_left_out(const std::string& page) {
  std::istringstream section(section_of(page, "Wings"));
  std::map<std::string, std::string> rows;  // by room
  for (std::string line; std::getline(section, line);) {
    std::istringstream words(line);
    std::string bar;
    std::string room;
    if (words >> bar >> room && bar == "|") rows[room] = line;
  }
  Lines missing;
  for (const Wing& wing : kWings) {
    const std::string room(wing.room);
    const std::string name = wing.name == "." ? room + "/" : file_name(std::string(wing.name));
    if (rows[room].find("`" + name + "`") == std::string::npos) missing.push_back(room + ": " + name);
  }
  return missing;
}

/// New wings must be documented: the page has a row for each room that contains all wings of kWings.
TEST(IncludeArrows, ThePageNamesEveryWing) {
  std::ostringstream page;
  page << std::ifstream(fs::path(DFLOP_SOURCE_DIR) / "docs" / "architecture.md").rdbuf();
  EXPECT_EQ(wings_left_out(page.str()), Lines{});
}

TEST(IncludeArrows, AWingThatThePageLacksIsFound) {
  std::string page = "# Map\n\n## Wings\n\n| room | wings |\n|---|---|\n";
  for (const Room& room : kRooms) {
    page += "| " + std::string(room.name) + " |";
    for (const Wing& wing : kWings) {
      if (wing.room != room.name || (wing.room == "sim" && wing.name == "analysis")) continue;
      page +=
          " `" + (wing.name == "." ? std::string(room.name) + "/" : file_name(std::string(wing.name))) + "`";
    }
    page += " |\n";
  }
  // A name in another section does not count.
  EXPECT_EQ(wings_left_out(page + "\n## Words\n\n| sim | `analysis` |\n"), Lines{"sim: analysis"});
}

TEST(IncludeArrowsChecker, AllowsArrowsDown) {
  EXPECT_EQ(check("sim/a.cpp", "#include \"sim/a.hpp\"\n#include \"core/b.hpp\"\n#include <vector>\n"),
            Lines{});
  EXPECT_EQ(check("experiments/training/a.cpp", "#include \"solver/a.hpp\"\n#include \"backend/b.hpp\"\n"),
            Lines{});
  EXPECT_EQ(
      check("experiments/studies/a.cpp", "#include \"backend/b.hpp\"\n"),
      Lines{"experiments/studies/a.cpp:1: the wing studies may not include backend/b.hpp, as it runs nothing "
            "live"});
  EXPECT_EQ(check("kernels/a.cu", "#include <cuda_runtime.h>\n#include <cublas_v2.h>\n"), Lines{});
  EXPECT_EQ(check("backend/a.cpp", "#include <nccl.h>\n"), Lines{});
  EXPECT_EQ(check("solver/bins/ilp.cpp", "#include <coin/CbcModel.hpp>\n"), Lines{});
  EXPECT_EQ(check("solver/makespan/bound.cpp", "#include <ClpSimplex.hpp>\n"), Lines{});
}

TEST(IncludeArrowsChecker, FindsArrowsUpOrSideways) {
  EXPECT_EQ(check("core/a.cpp", "\n#include \"sim/b.hpp\"\n"),
            Lines{"core/a.cpp:2: core/ may not include sim/b.hpp"});
  EXPECT_EQ(check("solver/a.cpp", "#include \"sim/b.hpp\"\n"),
            Lines{"solver/a.cpp:1: solver/ may not include sim/b.hpp"});
  EXPECT_EQ(check("traces/a.cpp", "  #  include <costmodel/b.hpp>  // why\n"),
            Lines{"traces/a.cpp:1: traces/ may not include costmodel/b.hpp"});
}

TEST(IncludeArrowsChecker, KeepsWingsApart) {
  EXPECT_EQ(check("solver/makespan/a.cpp", "#include \"solver/bins/b.hpp\"\n#include \"solver/c.hpp\"\n"),
            Lines{});
  EXPECT_EQ(check("solver/bins/a.cpp", "#include \"solver/makespan/b.hpp\"\n"),
            Lines{"solver/bins/a.cpp:1: the wing bins may not include solver/makespan/b.hpp"});
  EXPECT_EQ(check("solver/a.cpp", "#include \"solver/planners/search/b.hpp\"\n"),
            Lines{"solver/a.cpp:1: the wing . may not include solver/planners/search/b.hpp"});
  EXPECT_EQ(check("solver/attic/a.cpp", "#include \"solver/b.hpp\"\n"),
            Lines{"solver/attic/a.cpp:1: the wing attic of solver/ is not in kWings"});
}

TEST(IncludeArrowsChecker, FindsWarehouses) {
  std::vector<SourceFile> files(kMaxSources + 1, SourceFile{"sim/a.cpp", ""});
  EXPECT_EQ(check_tree(files), Lines{"sim: 35 sources; make wings"});
  files.pop_back();
  EXPECT_EQ(check_tree(files), Lines{});
}

TEST(IncludeArrowsChecker, FindsVendorHeadersElsewhere) {
  EXPECT_EQ(check("sim/a.cpp", "#include <cuda_runtime.h>\n"),
            Lines{"sim/a.cpp:1: CUDA header cuda_runtime.h outside kernels/ and backend/"});
  EXPECT_EQ(check("core/a.cpp", "#include \"nccl.h\"\n"),
            Lines{"core/a.cpp:1: CUDA header nccl.h outside kernels/ and backend/"});
  EXPECT_EQ(
      check("experiments/a.cpp", "#include <coin/OsiClpSolverInterface.hpp>\n"),
      Lines{"experiments/a.cpp:1: COIN header coin/OsiClpSolverInterface.hpp outside solver/bins/ilp.cpp and "
            "solver/makespan/bound.cpp"});
  EXPECT_EQ(check("solver/a.cpp", "#include <coin/CoinPackedVector.hpp>\n"),
            Lines{"solver/a.cpp:1: COIN header coin/CoinPackedVector.hpp outside solver/bins/ilp.cpp and "
                  "solver/makespan/bound.cpp"});
}

TEST(IncludeArrowsChecker, FindsBadHeaders) {
  EXPECT_EQ(check("sim/a.hpp", "int x;\n"), Lines{"sim/a.hpp:1: header without #pragma once"});
  EXPECT_EQ(check("sim/a.hpp", "#pragma once\n"), Lines{});
  EXPECT_EQ(check("sim/a.cpp", "#include \"a.hpp\"\n"),
            Lines{"sim/a.cpp:1: \"a.hpp\" is not of the form \"room/file.hpp\""});
  EXPECT_EQ(check("sim/a.cpp", "#include \"sim/a.cpp\"\n"), Lines{"sim/a.cpp:1: includes itself"});
}

TEST(IncludeArrowsChecker, FindsLongFiles) {
  EXPECT_EQ(check("sim/a.cpp", std::string(800, '\n')), Lines{});
  EXPECT_EQ(check("sim/a.cpp", std::string(801, '\n')),
            Lines{"sim/a.cpp:801: longer than 800 lines, and not in kLongFiles"});
}

}  // namespace include_arrows_test
}  // namespace dflop::testing
