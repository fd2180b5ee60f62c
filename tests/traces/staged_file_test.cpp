#include "traces/text/staged_file.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace staged_file_test {

namespace fs = std::filesystem;

class StagedFiles : public ::testing::Test {
 protected:
  StagedFiles() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("dflop_staged_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~StagedFiles() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

TEST_F(StagedFiles, PiecesAppearTogether) {
  StagedFile file(path("a"));
  file.append("one ");
  file.append("");
  file.append("two");
  EXPECT_FALSE(fs::exists(path("a")));
  file.sync();
  file.take_final_name();
  EXPECT_EQ(read(path("a")), "one two");
  EXPECT_EQ(files(), 1);
}

TEST_F(StagedFiles, UnnamedFilesAreRemoved) {
  { StagedFile(path("a")).append("x"); }
  {
    StagedFile closed(path("b"));
    closed.close();
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(StagedFiles, APieceThatDoesNotFitIsAnError) {
  StagedFile file(path("a"));
  file.append("old");
  // Limit the files of this process to 1000 bytes.
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit small{1000, usual.rlim_max};
  const auto usual_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = error_of([&] { file.append(std::string(2000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, usual_handler);
  EXPECT_EQ(error.kind(), ErrorKind::output);
  EXPECT_EQ(error.context(), path("a"));
  EXPECT_EQ(error.message(), "cannot write: File too large");
}

TEST_F(StagedFiles, ASignalLeavesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);
    remove_temporaries_on_signals();
    StagedFile file(path("a"));
    file.append("x");
    raise(SIGTERM);
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_EQ(files(), 0);
}

TEST_F(StagedFiles, FoldersAreRejected) {
  EXPECT_EQ(error_of([&] { StagedFile file(folder_.string()); }).message(),
            "cannot write: it is a directory");
  EXPECT_EQ(error_of([&] { StagedFile file(path("no/a")); }).message(),
            "cannot write: No such file or directory");
}

}  // namespace staged_file_test
}  // namespace dflop
