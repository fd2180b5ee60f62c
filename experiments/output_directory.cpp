#include "experiments/output_directory.hpp"

#include <filesystem>
#include <system_error>

#include "core/error.hpp"
#include "traces/output_file.hpp"

namespace dflop {

void make_output_directory(const std::string& directory, const std::string& file) {
  std::error_code problem;
  std::filesystem::create_directories(directory, problem);
  if (problem || !std::filesystem::is_directory(directory)) {
    throw Error(ErrorKind::output, "the directory could not be made: " + problem.message(), directory);
  }
  check_output(std::filesystem::path(directory) / file);
}

}  // namespace dflop
