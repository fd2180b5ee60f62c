#include "experiments/cli/picture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConverter = "rsvg-convert";
constexpr const char* kPackage = "librsvg2-bin";

/// Returns the extension of a path in lower case, such as ".png".
std::string ending_of(const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

bool is_converted(const std::string& ending) {
  return ending == ".png" || ending == ".pdf";
}

/// A TemporaryFile is removed when the object is destroyed.
class TemporaryFile {
 public:
  TemporaryFile() : path_((fs::temp_directory_path() / "dflop-picture-XXXXXX").string()) {
    const int file = mkstemp(path_.data());
    if (file < 0) throw Error(ErrorKind::output, std::strerror(errno), path_);
    close(file);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() { unlink(path_.c_str()); }

  const std::string& path() const { return path_; }
  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

 private:
  std::string path_;
};

/// Runs a program, found on PATH, without input and with its output and errors in two files. Returns its exit
/// code, or -1 if it cannot be started or is ended by a signal.
int run_program(std::vector<std::string> arguments, const std::string& out, const std::string& err) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> environment;
  std::string epoch = "SOURCE_DATE_EPOCH=0";  // keeps the time of creation out of a PDF
  environment.push_back(epoch.data());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("SOURCE_DATE_EPOCH=")) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_TRUNC, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_TRUNC, 0);
  pid_t child = -1;
  const int started = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (started != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool has_converter() {
  const TemporaryFile out;
  const TemporaryFile err;
  return run_program({kConverter, "--version"}, out.path(), err.path()) == 0;
}

}  // namespace

std::string read_picture_output(const Values& values, const std::string& name) {
  const auto path = values[name].as<std::string>();
  const std::string ending = ending_of(path);
  for (const char* other : {".jpg", ".jpeg", ".gif", ".webp", ".eps", ".ps"}) {
    if (ending == other) refuse_value(name, "the name of an SVG, PNG or PDF file, such as run.svg", path);
  }
  if (is_converted(ending) && !has_converter()) {
    refuse_option(name, fmt::format("'{}' needs {}, which is not installed: install Debian's package {}, "
                                    "or write an SVG",
                                    path, kConverter, kPackage));
  }
  return read_output(values, name).value();
}

std::string as_picture(const std::string& svg, const std::string& path) {
  const std::string ending = ending_of(path);
  if (!is_converted(ending)) return svg;
  const TemporaryFile in;
  const TemporaryFile out;
  const TemporaryFile err;
  in.write(svg);
  const std::string format = ending.substr(1);
  std::vector<std::string> arguments = {kConverter, "--unlimited",        "--format",
                                        format,     "--background-color", "white"};
  if (format == "png") arguments.insert(arguments.end(), {"--zoom", "2"});
  arguments.push_back(in.path());
  const int code = run_program(std::move(arguments), out.path(), err.path());
  std::string picture = out.read();
  if (code != 0 || picture.empty()) {
    std::string said = err.read();
    said = said.substr(0, said.find('\n'));
    throw Error(ErrorKind::output,
                fmt::format("{} ended with {}{}{}", kConverter, code, said.empty() ? "" : ": ", said), path);
  }
  return picture;
}

}  // namespace dflop
