#include "tests/cli/running.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

namespace dflop::testing {

Running::Running(const Sandbox& sandbox, std::vector<std::string> arguments)
    : err_(sandbox.path("running.err")) {
  const std::string directory = sandbox.path(".").string();
  std::string program = DFLOP_BINARY;
  std::vector<char*> words{program.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  std::signal(SIGINT, SIG_DFL);  // a shell that runs tests in the background makes them ignore it
  const int null = ::open("/dev/null", O_RDWR);
  const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (::chdir(directory.c_str()) == 0 && ::dup2(null, 0) == 0 && ::dup2(null, 1) == 1 &&
      ::dup2(err, 2) == 2) {
    ::execv(program.c_str(), words.data());
  }
  ::_exit(127);
}

Running::~Running() {
  if (has_ended()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Running::has_ended() {
  if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

void Running::wait_until(const std::function<bool()>& condition) {
  while (!condition() && !has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

bool Running::has_threads() const {
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid_) + "/task");
  return std::distance(begin(threads), end(threads)) > 1;
}

void Running::send(int signal) const {
  if (!ended_) ::kill(pid_, signal);
}

int Running::wait() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  wait_until([&] { return std::chrono::steady_clock::now() > deadline; });
  if (!has_ended()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
    ended_ = true;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

std::string Running::err() const {
  return read_all(err_);
}

}  // namespace dflop::testing
