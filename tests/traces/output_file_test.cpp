#include "traces/text/text_file.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace output_file_test {

namespace fs = std::filesystem;

class OutputFile : public ::testing::Test {
 protected:
  OutputFile() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("dflop_output_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~OutputFile() override { fs::remove_all(folder_); }

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

TEST_F(OutputFile, WritesAndReplacesLeavingNothingElse) {
  write_file_atomically(path("a.json"), "first and longer");
  write_file_atomically(path("a.json"), "second");
  EXPECT_EQ(read(path("a.json")), "second");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, FailureNamesPathAndReasonAndLeavesNothing) {
  const Error missing = error_of([&] { write_file_atomically(path("no/such/a.json"), "x"); });
  EXPECT_EQ(missing.kind(), ErrorKind::output);
  EXPECT_EQ(missing.context(), path("no/such/a.json"));
  EXPECT_EQ(missing.message(), "cannot write: No such file or directory");

  fs::create_directory(path("folder"));
  EXPECT_EQ(error_of([&] { write_file_atomically(path("folder"), "x"); }).message(),
            "cannot write: it is a directory");
  EXPECT_EQ(files(), 1);  // the folder
}

TEST_F(OutputFile, FailureInTheMiddleKeepsTheOldFile) {
  write_file_atomically(path("a"), "old");
  // Files of this process may not grow beyond 1000 bytes; the write of 100,000 stops there.
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit small{1000, usual.rlim_max};
  const auto usual_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = error_of([&] { write_file_atomically(path("a"), std::string(100'000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, usual_handler);
  EXPECT_EQ(error.message(), "cannot write: File too large");
  EXPECT_EQ(read(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, DevicesAreWrittenToAndNotReplaced) {
  // /dev/full accepts no bytes: the failure of the write itself must be noticed.
  EXPECT_EQ(error_of([] { write_file_atomically("/dev/full", "x"); }).message(),
            "cannot write: No space left on device");
  EXPECT_NO_THROW(write_file_atomically("/dev/null", "x"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(OutputFile, ASymbolicLinkStaysASymbolicLink) {
  write_file_atomically(path("real"), "old");
  fs::create_symlink(path("real"), path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read(path("real")), "new");
}

TEST_F(OutputFile, CompressesByName) {
  const std::string text(10'000, 'x');
  write_file_atomically(path("a.json.gz"), text);
  const std::string packed = read(path("a.json.gz"));
  EXPECT_LT(packed.size(), 200U);
  // RFC 1952: bytes 4 to 7 are the timestamp.
  EXPECT_EQ(packed.substr(4, 4), std::string(4, '\0'));
  EXPECT_EQ(gunzip_if_needed(packed, "a.json.gz"), text);
}

TEST_F(OutputFile, AReplacedFileKeepsItsPermissions) {
  write_file_atomically(path("a"), "old");
  const auto only_owner = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(path("a"), only_owner);
  write_file_atomically(path("a"), "new");
  EXPECT_EQ(fs::status(path("a")).permissions(), only_owner);
  EXPECT_EQ(read(path("a")), "new");
  // A file with more permissions than usual keeps them too.
  fs::permissions(path("a"), fs::perms(0666));
  write_file_atomically(path("a"), "newer");
  EXPECT_EQ(fs::status(path("a")).permissions(), fs::perms(0666));
}

TEST_F(OutputFile, TheFileOfADanglingLinkIsMade) {
  fs::create_directory(path("folder"));
  fs::create_symlink("folder/real", path("second"));
  fs::create_symlink("second", path("first"));
  check_output(path("first"));
  write_file_atomically(path("first"), "new");
  EXPECT_TRUE(fs::is_symlink(path("first")));
  EXPECT_TRUE(fs::is_symlink(path("second")));
  EXPECT_EQ(read(path("folder/real")), "new");
  EXPECT_EQ(files(), 3);

  fs::create_symlink("no/such", path("nowhere"));
  for (const auto& use : {+[](const std::string& p) { check_output(p); },
                          +[](const std::string& p) { write_file_atomically(p, "x"); }}) {
    EXPECT_EQ(error_of([&] { use(path("nowhere")); }).message(), "cannot write: No such file or directory");
  }
  fs::create_symlink("circle", path("circle"));
  EXPECT_EQ(error_of([&] { write_file_atomically(path("circle"), "x"); }).message(),
            "cannot write: Too many levels of symbolic links");
}

TEST_F(OutputFile, CheckingLeavesNothingAndKeepsOldFiles) {
  write_file_atomically(path("a"), "old");
  check_output(path("a"));
  check_output(path("b.gz"));
  check_output("/dev/null");
  EXPECT_EQ(read(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

/// The system reports that the folder is writable, but no file can be created in it.
TEST_F(OutputFile, CheckingFindsFoldersThatTakeNoFiles) {
  for (const std::string name : {"/proc/x", "/proc/x.gz"}) {
    EXPECT_EQ(error_of([&] { check_output(name); }).context(), name);
  }
}

TEST_F(OutputFile, SeveralAppearTogether) {
  write_file_atomically(path("a"), "old");
  StagedOutputs outputs;
  outputs.add(path("a"), "new");
  outputs.add(path("b"), "b");
  EXPECT_EQ(read(path("a")), "old");
  EXPECT_FALSE(fs::exists(path("b")));
  outputs.commit();
  EXPECT_EQ(read(path("a")), "new");
  EXPECT_EQ(read(path("b")), "b");
  EXPECT_EQ(files(), 2);
}

TEST_F(OutputFile, SeveralFailTogether) {
  write_file_atomically(path("a"), "old");
  error_of([&] {
    StagedOutputs outputs;
    outputs.add(path("a"), "new");
    outputs.add(path("no/such"), "b");
  });
  error_of([&] {
    StagedOutputs outputs;
    outputs.add(path("a"), "new");
    outputs.add("/dev/full", "x");
    outputs.commit();
  });
  EXPECT_EQ(read(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

/// Stages two outputs in a child process, and returns how the child ended.
template <typename End>
int status_after_staging(const std::string& path, End end) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
    remove_temporaries_on_signals();
    StagedOutputs outputs;
    outputs.add(path, "x");
    outputs.add(path + "2", "y");
    end();
    _exit(7);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST_F(OutputFile, ASignalLeavesNoTemporaries) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    const int status = status_after_staging(path("a"), [&] { raise(signal); });
    ASSERT_TRUE(WIFSIGNALED(status)) << signal;
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_EQ(files(), 0) << signal;
  }
  // Without a signal the child does leave them, which proves that the test can detect leftovers.
  const int status = status_after_staging(path("a"), [] {});
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(files(), 2);
}

TEST_F(OutputFile, AFileThatGrowsTooLargeIsAnErrorAndNoSignal) {
  const int status = status_after_staging(path("a"), [&] {
    const rlimit small{1000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &small);
    try {
      write_file_atomically(path("large"), std::string(100'000, 'x'));
    } catch (const Error& error) {
      _exit(error.message() == "cannot write: File too large" ? 3 : 4);
    }
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace output_file_test
}  // namespace dflop
