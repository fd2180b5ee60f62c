#include "tests/cli/run.hpp"

#include <stdlib.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace dflop::testing {

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
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

RunResult Sandbox::run(const std::string& arguments) const {
  const std::string out = path(".stdout").string();
  const std::string err = path(".stderr").string();
  const std::string command = "cd '" + directory_.string() + "' && '" DFLOP_BINARY "' " + arguments + " >'" +
                              out + "' 2>'" + err + "' </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_all(out), read_all(err)};
}

}  // namespace dflop::testing
