#include "traces/text/staged_folder.hpp"

#include <filesystem>
#include <fstream>

#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace staged_folder_test {

namespace fs = std::filesystem;

class StagedFolders : public ::testing::Test {
 protected:
  StagedFolders() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / (std::string("dflop_staged_folder_") + test->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~StagedFolders() override { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }

  static void write(const std::string& file) { std::ofstream(file) << "x"; }

  /// Returns the names of a folder's entries, sorted.
  std::vector<std::string> names(const std::string& folder = "") const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(root_ / folder)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

  void refused(const std::string& folder, const std::string& what) const {
    for (const auto& refusal : {error_of([&] { check_output_folder(path(folder)); }),
                                error_of([&] { StagedFolder{path(folder)}; })}) {
      EXPECT_EQ(refusal.kind(), ErrorKind::output);
      EXPECT_NE(refusal.message().find(what), std::string::npos) << refusal.message();
    }
  }

  fs::path root_;
};

TEST_F(StagedFolders, FilesAppearTogether) {
  for (const char* name : {"new", "above/new", "slash/"}) {
    StagedFolder folder(path(name));
    write(folder.part() + "/a");
    EXPECT_FALSE(fs::exists(path(name)));
    folder.take_final_name();
    EXPECT_EQ(names(name), std::vector<std::string>{"a"});
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"above", "new", "slash"}));
}

TEST_F(StagedFolders, UnnamedFoldersAreRemoved) {
  { write(StagedFolder(path("a")).part() + "/x"); }
  EXPECT_TRUE(names().empty());
}

TEST_F(StagedFolders, AnEmptyFolderIsReplacedAndALinkStays) {
  fs::create_directory(path("there"));
  fs::create_directory_symlink(path("there"), path("link"));
  StagedFolder folder(path("link"));
  write(folder.part() + "/a");
  folder.take_final_name();
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(names("there"), std::vector<std::string>{"a"});
}

TEST_F(StagedFolders, ExistingFoldersAreNotRemoved) {
  fs::create_directory(path("full"));
  write(path("full/kept"));
  write(path("file"));
  refused("full", "something else already has this name");
  refused("file", "something else already has this name");
  fs::create_directory(path("a.part"));
  write(path("a.part/kept"));
  refused("a", "something else has this name, which the folder needs until it is complete");
  EXPECT_TRUE(fs::exists(path("full/kept")) && fs::exists(path("a.part/kept")));
}

/// A killed process leaves its partial folder and the lock file.
TEST_F(StagedFolders, LeftoversOfAKilledProcessAreRemoved) {
  fs::create_directories(path("a.part/pieces"));
  write(path("a.part/pieces/x"));
  write(path("a.part/.lock"));
  check_output_folder(path("a"));
  StagedFolder folder(path("a"));
  folder.take_final_name();
  EXPECT_TRUE(names("a").empty());
}

TEST_F(StagedFolders, OneProcessWritesAFolder) {
  StagedFolder folder(path("a"));
  write(folder.part() + "/mine");
  const Error error = error_of([&] { StagedFolder{path("a")}; });
  EXPECT_NE(error.message().find("another process is writing it"), std::string::npos) << error.message();
  EXPECT_TRUE(fs::exists(folder.part() + "/mine"));
}

}  // namespace staged_folder_test
}  // namespace dflop
