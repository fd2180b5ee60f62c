// Small sweeps, each in its own directory.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop::testing {

class SweepTest : public ::testing::Test {
 protected:
  /// Writes small.csv: the header and the first records of the real mix.
  SweepTest() {
    std::ifstream in(std::string(DFLOP_SOURCE_DIR) + "/traces/datasets/vision_mix.csv");
    std::string text;
    std::string line;
    for (int i = 0; i < 400 && std::getline(in, line); ++i) text += line + "\n";
    write_all(sandbox_.path("small.csv"), text);
  }

  /// Returns the axes of one cell on one node, with `axes` replacing some.
  static nlohmann::json spec(const nlohmann::json& axes = nlohmann::json::object()) {
    nlohmann::json all = {{"model", {"llava-ov-llama3-8b"}},
                          {"cluster", {"a100-80g-vtrain"}},
                          {"data", {"small.csv"}},
                          {"gbs", {16}},
                          {"iterations", {2}},
                          {"planner", {"dflop"}},
                          {"scheduler", {"lpt"}}};
    all.update(axes);
    return {{"schema", "dflop.sweep"}, {"version", 1}, {"axes", all}};
  }

  void write(const std::string& file, const nlohmann::json& text) const {
    write_all(sandbox_.path(file), text.dump(1));
  }

  /// Runs a spec into a database and returns its counts.
  nlohmann::json sweep(const nlohmann::json& text, const std::string& out,
                       const std::string& options = "") const {
    write("spec.json", text);
    const RunResult result =
        sandbox_.run("sweep --spec spec.json --format json --out " + out + " " + options);
    EXPECT_LE(result.exit_code, 1) << result.err;
    return result.out.empty() ? nlohmann::json() : testing::rows_of(result.out)[0];
  }

  /// Returns the reproducible part of databases as CSV.
  std::string csv(const std::string& files) const {
    const RunResult result = sandbox_.run("sweep export --format csv --db " + files);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  nlohmann::json rows(const std::string& files, const std::string& options = "") const {
    const RunResult result = sandbox_.run("sweep export --format json --db " + files + " " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return testing::rows_of(result.out);
  }

  Sandbox sandbox_;
};

}  // namespace dflop::testing
