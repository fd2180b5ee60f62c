// Runs the built `dflop` as a user does: in a fresh directory, through a shell.
#pragma once

#include <filesystem>
#include <string>

namespace dflop::testing {

struct RunResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string read_all(const std::filesystem::path& path);
void write_all(const std::filesystem::path& path, const std::string& text);

/// A directory of its own for each test, removed at the end, with `traces` linked to the source tree's.
class Sandbox {
 public:
  Sandbox();
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  std::filesystem::path path(const std::string& name) const { return directory_ / name; }
  bool has(const std::string& name) const { return std::filesystem::exists(path(name)); }

  /// `arguments` is shell text that follows "dflop".
  RunResult run(const std::string& arguments) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace dflop::testing
