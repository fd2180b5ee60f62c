// A `dflop` that runs beside the test, which stops or kills it.
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
  /// Begins in the sandbox; standard error goes to its file "running.err".
  Running(const Sandbox& sandbox, std::vector<std::string> arguments);
  ~Running();  ///< kills it
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Waits until `condition` holds or the process has ended.
  void wait_until(const std::function<bool()>& condition);
  /// Tells whether the command is past reading its input: those that compute have threads from then on.
  bool has_threads() const;
  void send(int signal) const;
  /// The exit code, or 128 + the signal that killed it; of one that does not end in a minute SIGKILL does.
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
