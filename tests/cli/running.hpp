// A `dflop` process that runs concurrently with the test, which can stop or kill it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"

namespace dflop::testing {

class Running {
 public:
  /// Starts in the sandbox. Standard error goes to its file "running.err".
  Running(const Sandbox& sandbox, std::vector<std::string> arguments);
  ~Running();  ///< kills the process
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Waits until `condition` holds or the process has ended.
  void wait_until(const std::function<bool()>& condition);
  /// Tells whether the command has read its input: commands that compute have threads from then on.
  bool has_threads() const;
  void send(int signal) const;
  /// Returns the exit code, or 128 + the signal that killed the process. A process that does not end within a
  /// minute is killed.
  int wait();
  std::string err() const;

 private:
  bool has_ended();

  std::filesystem::path err_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace dflop::testing
