// The next process removes what a killed process left next to its output. Files that other processes are
// writing stay.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/traces/file_fixtures.hpp"
#include "traces/text/staged_file.hpp"

namespace dflop {
namespace leftovers_test {

namespace fs = std::filesystem;

class Leftovers : public ::testing::Test {
 protected:
  Leftovers() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("dflop_leftovers_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Leftovers() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Writes to a file in a process that is killed before the file has its final name. Returns the process.
  pid_t killed_while_writing(const std::string& name) const {
    const pid_t process = ::fork();
    if (process == 0) {
      StagedFile file(path(name));
      file.append("half of it");
      ::raise(SIGKILL);
    }
    int status = 0;
    ::waitpid(process, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    return process;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  fs::path folder_;
};

TEST_F(Leftovers, OfAKilledProcessAreRemovedWithANote) {
  killed_while_writing("a");
  killed_while_writing("b");
  ASSERT_EQ(names().size(), 2U);
  ::testing::internal::CaptureStderr();
  StagedFile(path("a")).take_final_name();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("dflop: note: removed " + path("a.part-")), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  ASSERT_EQ(names().size(), 2U) << "the one of b is not of this file";
  EXPECT_EQ(names()[0], "a");
  EXPECT_TRUE(names()[1].starts_with("b.part-"));
}

TEST_F(Leftovers, UnfinishedAndOtherFilesAreKept) {
  const pid_t dead = killed_while_writing("b");
  const std::string held = "a.part-" + std::to_string(dead) + "-0123abcd";
  const std::vector<std::string> others = {"a.part-old",
                                           "a.part-" + std::to_string(dead) + "-0123abcX",
                                           "a.part-" + std::to_string(dead) + "-0123abcde",
                                           "aa.part-" + std::to_string(dead) + "-0123abcd",
                                           "a.part-0-0123abcd",
                                           "a.part-" + std::to_string(::getpid()) + "-0123abcd",
                                           held};
  for (const std::string& name : others) std::ofstream(path(name)) << "x";
  // The file of a process on another machine: the process looks dead here, but its lock is visible.
  const int lock = ::open(path(held).c_str(), O_RDONLY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  StagedFile(path("a")).take_final_name();
  ::close(lock);
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(path(name))) << name;
}

TEST_F(Leftovers, NamesMayBeAsLongAsTheFileSystemTakes) {
  for (const std::size_t size : {std::size_t{229}, std::size_t{230}, std::size_t{250}, std::size_t{255}}) {
    std::string name(size, 'n');
    killed_while_writing(name);
    StagedFile file(path(name));
    file.append("whole");
    file.take_final_name();
    EXPECT_EQ(names(), std::vector<std::string>{name});
    fs::remove(path(name));
  }
  std::string umlauts;  // two bytes each
  while (umlauts.size() < 252) umlauts += "\xC3\xA4";
  StagedFile(path(umlauts)).take_final_name();
  EXPECT_TRUE(fs::exists(path(umlauts)));
  EXPECT_EQ(error_of([&] { StagedFile(path(std::string(256, 'n'))); }).kind(), ErrorKind::output);
}

TEST_F(Leftovers, AFileThatIsReadOnlyIsRejected) {
  std::ofstream(path("a")) << "old";
  ASSERT_EQ(::chmod(path("a").c_str(), 0400), 0);
  const Error error = error_of([&] { StagedFile(path("a")); });
  EXPECT_EQ(error.kind(), ErrorKind::output);
  EXPECT_NE(error.message().find("the file is read-only"), std::string::npos) << error.message();
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
  ASSERT_EQ(::chmod(path("a").c_str(), 0600), 0);
  StagedFile(path("a")).take_final_name();
}

/// Root may write everywhere, so the test goes on as another user, in a separate process.
TEST_F(Leftovers, AFolderThatMayNotBeWrittenIsNamed) {
  std::ofstream(path("a")) << "old";
  ASSERT_EQ(::chmod(path("a").c_str(), 0666), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(77);
    if (::access(folder_.c_str(), X_OK) != 0) ::_exit(77);
    try {
      StagedFile file(path("a"));
      ::_exit(1);
    } catch (const Error& error) {
      const std::string expected =
          "no file can be created in its folder, " + folder_.string() + ": Permission denied";
      ::_exit(error.message().find(expected) != std::string::npos ? 42 : 2);
    }
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  ::chmod(folder_.c_str(), 0755);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this user cannot become another";
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

}  // namespace leftovers_test
}  // namespace dflop
