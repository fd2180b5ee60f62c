// Inputs that are not regular files: pipes, as from a shell's <(...), and endless files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/cli/run.hpp"

namespace dflop {
namespace pipes_test {

using testing::RunResult;
using testing::Sandbox;

/// A pipe that commands inherit and that gives a text once. Whoever reads it again finds nothing.
class Pipe {
 public:
  explicit Pipe(std::string text) {
    if (::pipe2(ends_, O_CLOEXEC) != 0 || ::fcntl(ends_[0], F_SETFD, 0) != 0) {
      throw std::runtime_error("no pipe");
    }
    writer_ = std::jthread([end = ends_[1], text = std::move(text)] {
      sigset_t broken;  // a reader that ends early fails the test instead of killing the process
      ::sigemptyset(&broken);
      ::sigaddset(&broken, SIGPIPE);
      ::pthread_sigmask(SIG_BLOCK, &broken, nullptr);
      for (std::size_t at = 0; at < text.size();) {
        const ssize_t written = ::write(end, text.data() + at, text.size() - at);
        if (written < 0) break;
        at += static_cast<std::size_t>(written);
      }
      ::close(end);
    });
  }
  ~Pipe() { ::close(ends_[0]); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  std::string name() const { return "/dev/fd/" + std::to_string(ends_[0]); }

 private:
  int ends_[2] = {-1, -1};
  std::jthread writer_;
};

void expect_done(const RunResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out, "");
}

constexpr const char* kGrid = R"({"schema": "dflop.grid", "version": 1, "model": "tiny-vlm",
  "cluster": "a100-80g-vtrain:1", "gbs": 8, "plans": [{"name": "split", "encoder": {"tp": 1, "pp": 1, "dp": 1},
  "llm": {"tp": 1, "pp": 1, "dp": 1}, "microbatches": 4}]})";

TEST(Pipes, AreReadOnceByLiveRuns) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.run("profile --model tiny-vlm --budget-s 0.1 --most-tokens 64 --out p.json").exit_code,
            0);
  const std::string profile_text = testing::read_all(sandbox.path("p.json"));
  {
    const Pipe data(testing::image_records());
    const Pipe profile(profile_text);
    expect_done(
        sandbox.run("train --steps 1 --gbs 4 --data " + data.name() + " --profile " + profile.name()));
  }
  const Pipe data(testing::image_records());
  const Pipe profile(profile_text);
  const Pipe grid(kGrid);
  expect_done(sandbox.run("check runs --steps 1 --warm-up 1 --data " + data.name() + " --profile " +
                          profile.name() + " --plans " + grid.name()));
}

TEST(Pipes, AreReadOnceBySimulations) {
  const Sandbox sandbox;
  const std::string data = " --data traces/datasets/vision_mix.csv ";
  ASSERT_EQ(
      sandbox
          .run("plan --planner dflop --model tiny-vlm --cluster a100-80g-vtrain:1 --gbs 32 --out plan.json" +
               data)
          .exit_code,
      0);
  ASSERT_EQ(sandbox.run("schedule --plan plan.json --out s.json --iterations 1" + data).exit_code, 0);
  const Pipe plan(testing::read_all(sandbox.path("plan.json")));
  const Pipe schedule(testing::read_all(sandbox.path("s.json")));
  expect_done(sandbox.run("simulate --plan " + plan.name() + " --schedule " + schedule.name()));
  const Pipe pipeline(testing::two_stages());
  expect_done(sandbox.run("simulate --pipeline " + pipeline.name()));
}

TEST(Pipes, WithoutAnEndAreRejected) {
  const Sandbox sandbox;
  for (const char* command :
       {"train --steps 1 --data", "train --steps 1 --plan", "check runs --plans", "simulate --pipeline"}) {
    testing::expect_error(sandbox.run(std::string(command) + " /dev/zero"),
                          {"/dev/zero: expected at most 512 MiB, found more"});
  }
}

}  // namespace pipes_test
}  // namespace dflop
