#include "tests/cli/run.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace dflop::testing {

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string read_result(const std::filesystem::path& path) {
  static const std::regex made_by(",\n  \"made_by\": .*\n|<pre class='lines'>[^<]*</pre>");
  return std::regex_replace(read_all(path), made_by, "\n");
}

void write_all(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Sandbox::Sandbox() {
  std::string name = (std::filesystem::temp_directory_path() / "dflop-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  directory_ = name;
  std::filesystem::create_directory_symlink(std::filesystem::path(DFLOP_SOURCE_DIR) / "traces",
                                            directory_ / "traces");
}

Sandbox::~Sandbox() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

RunResult Sandbox::run(const std::string& arguments, const std::string& input) const {
  const std::string out = path(".stdout").string();
  const std::string err = path(".stderr").string();
  const std::string command = "cd '" + directory_.string() + "' && '" DFLOP_BINARY "' " + arguments + " >'" +
                              out + "' 2>'" + err + "' <'" + input + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_all(out), read_all(err)};
}

std::string image_records(int count) {
  std::ifstream in(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv");
  std::string text;
  std::string line;
  std::getline(in, line);
  text += line + "\n";
  while (count > 0 && std::getline(in, line)) {
    if (line.find(",image,") == std::string::npos) continue;
    text += line + "\n";
    --count;
  }
  return text + "two,test,,multi_image,two,2,32x32|32x32,,,,,,1,4,4,8\n";
}

nlohmann::json rows_of(const std::string& out) {
  nlohmann::json result = nlohmann::json::parse(out, nullptr, false);
  return result.is_object() && result.contains("rows") ? result["rows"] : result;
}

void expect_error(const RunResult& result, const std::vector<std::string>& parts, int exit_code) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  for (const std::string& part : parts)
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
  std::istringstream lines(result.err);
  int others = 0;  // lines other than notes about input files
  for (std::string line; std::getline(lines, line);) others += line.starts_with("dflop: note: ") ? 0 : 1;
  EXPECT_EQ(others, 1) << "one line, found:\n" << result.err;
}

std::vector<double> replayed_ms(const Sandbox& sandbox, const std::string& options) {
  const RunResult result = sandbox.run("replay --trace run.json --iteration all --format json " + options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<double> times;
  const nlohmann::json out = nlohmann::json::parse(result.out, nullptr, false);
  for (const nlohmann::json& run : out.value("runs", nlohmann::json::array()))
    times.push_back(1e3 * run["makespan_s"].get<double>());
  return times;
}

std::string two_stages(const std::string& schedule, int microbatches, const std::string& extra) {
  return R"({"schema": "dflop.pipeline", "version": 1, "schedule": ")" + schedule +
         R"(", "stages": 2, "microbatches": )" + std::to_string(microbatches) +
         R"(, "forward_s": 0.01, "backward_s": 0.02, "p2p_bytes": 1000000,
         "link": {"latency_s": 0.002, "bandwidth_bytes_per_s": 1e9})" +
         extra + "}";
}

}  // namespace dflop::testing
