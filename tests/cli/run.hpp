// Runs the built `dflop` as a user does: in a fresh directory, through a shell.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dflop::testing {

struct RunResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string read_all(const std::filesystem::path& path);
/// Returns a result without its provenance, which varies with the command and the machine.
std::string read_result(const std::filesystem::path& path);
void write_all(const std::filesystem::path& path, const std::string& text);

/// Returns the rows of a table that a command printed as JSON. If the output is not only a table, returns all
/// of it, and if it is not JSON, a discarded value.
nlohmann::json rows_of(const std::string& out);

/// A Sandbox is a test's own directory, removed at the end, with `traces` linked to the source tree's.
class Sandbox {
 public:
  Sandbox();
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  std::filesystem::path path(const std::string& name) const { return directory_ / name; }
  bool has(const std::string& name) const { return std::filesystem::exists(path(name)); }

  /// `arguments` is shell text after "dflop". `input` is a file in the sandbox or elsewhere.
  RunResult run(const std::string& arguments, const std::string& input = "/dev/null") const;

 private:
  std::filesystem::path directory_;
};

/// Returns a data set with the first `count` single images of traces/datasets/vision_mix.csv and one record
/// with two tiny images. Live runs on it take a fraction of the time of runs on videos and documents.
std::string image_records(int count = 100);

/// Expects one line on standard error with all of `parts`, nothing on standard output.
void expect_error(const RunResult& result, const std::vector<std::string>& parts, int exit_code = 2);

/// Returns the mean makespan of all steps of run.json in each row of a replay, in milliseconds.
std::vector<double> replayed_ms(const Sandbox& sandbox, const std::string& options);

/// A pipeline file of 2 stages, forward 10 ms, backward 20 ms, messages of 1 MB at 1 GB/s + 2 ms = 3 ms.
/// `extra` is JSON text with further keys, such as ", \"activation_bytes\": 100". 1F1B with 2 microbatches
/// takes 96 ms:
///   stage 0: F0 0-10, F1 10-20, idle, B0 46-66, idle, B1 76-96
///   stage 1: idle, F0 13-23, B0 23-43, F1 43-53, B1 53-73
std::string two_stages(const std::string& schedule = "1f1b", int microbatches = 2,
                       const std::string& extra = "");

}  // namespace dflop::testing
