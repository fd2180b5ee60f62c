#include "experiments/cli/output_directory.hpp"

#include <filesystem>
#include <system_error>

#include "core/error.hpp"
#include "traces/text/output_file.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_directory(const std::string& directory, const std::string& reason) {
  throw Error(ErrorKind::output, "the directory could not be made: " + reason, directory);
}

/// A link to nowhere is there: no folder can be made in its place.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

}  // namespace

void check_output_directory(const std::string& directory, const std::string& file) {
  const fs::path wanted = fs::absolute(directory).lexically_normal();
  fs::path there = wanted;
  fs::path missing;
  while (!is_there(there) && there.has_relative_path()) {
    missing = there;
    there = there.parent_path();
  }
  std::error_code ignored;
  if (!fs::is_directory(there, ignored))
    refuse_directory(directory, "'" + there.string() + "' is no directory");
  if (missing.empty()) return check_output((fs::path(directory) / file).string());
  try {
    check_output(missing.string());
  } catch (const Error& error) {
    refuse_directory(directory, error.message());
  }
}

void make_output_directory(const std::string& directory) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (problem || !fs::is_directory(directory)) refuse_directory(directory, problem.message());
}

}  // namespace dflop
