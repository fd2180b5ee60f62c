#include "traces/files/checkpoint.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "core/support/random.hpp"
#include "tests/traces/checkpoint_fixtures.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace checkpoint_folder_test {

namespace fs = std::filesystem;

class CheckpointFolder : public CheckpointTest {
 protected:
  void write(std::int64_t step) const {
    Checkpoint checkpoint = example_checkpoint();
    checkpoint.step = step;
    write_checkpoint(checkpoint_path(folder_, step), checkpoint);
  }

  void write_cut(std::int64_t step) const {
    write_bytes(checkpoint_path(folder_, step), to_bytes(example_checkpoint()).substr(0, 700));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

using Names = std::vector<std::string>;

TEST_F(CheckpointFolder, PathsSortByStep) {
  EXPECT_EQ(checkpoint_path("out", 50), "out/step-00000050.ckpt");
  EXPECT_EQ(checkpoint_path("out/", 0), "out/step-00000000.ckpt");
  EXPECT_EQ(checkpoint_path("", 1234567890123), "step-1234567890123.ckpt");
}

TEST_F(CheckpointFolder, NewestIsTheHighestStep) {
  EXPECT_EQ(newest_checkpoint(path("no such folder")).path, std::nullopt);
  EXPECT_EQ(newest_checkpoint(folder_).path, std::nullopt);
  for (const std::int64_t step : {100, 9, 99}) write(step);
  // Not names that checkpoint_path() gives.
  for (const char* name : {"step-200.ckpt", "step-00000200.ckpt.part-0badcafe", "step-00000200.ckp",
                           "xstep-00000200.ckpt", "step-0000020x.ckpt", "step-.ckpt", "step--0000200.ckpt"}) {
    write_checkpoint(path(name), example_checkpoint());
  }
  const NewestCheckpoint newest = newest_checkpoint(folder_);
  EXPECT_EQ(newest.path, checkpoint_path(folder_, 100));
  EXPECT_EQ(newest.notes, Names());
  // More digits than eight: as text "step-100000000" would come before "step-99999999".
  write(99'999'999);
  write(100'000'000);
  EXPECT_EQ(newest_checkpoint(folder_).path, checkpoint_path(folder_, 100'000'000));
}

TEST_F(CheckpointFolder, WhatCannotBeReadIsPassedOverWithANote) {
  write(10);
  write(20);
  write_cut(30);
  const NewestCheckpoint newest = newest_checkpoint(folder_);
  EXPECT_EQ(newest.path, checkpoint_path(folder_, 20));
  ASSERT_EQ(newest.notes.size(), 1U);
  EXPECT_EQ(newest.notes[0].find(checkpoint_path(folder_, 30) + ": cut short: expected"), 0U);

  write_cut(10);
  write_cut(20);
  EXPECT_EQ(newest_checkpoint(folder_).path, std::nullopt);
  EXPECT_EQ(newest_checkpoint(folder_).notes.size(), 3U);
}

TEST_F(CheckpointFolder, WhatIsNoFileIsNoCheckpoint) {
  for (const std::int64_t step : {10, 30, 40}) write(step);
  for (const std::string& name : {checkpoint_path(folder_, 20), checkpoint_path(folder_, 50),
                                  checkpoint_path(folder_, 40) + ".part-0badcafe"}) {
    fs::create_directories(fs::path(name) / "kept");
  }
  fs::create_symlink("nowhere", checkpoint_path(folder_, 60));
  const NewestCheckpoint newest = newest_checkpoint(folder_);
  EXPECT_EQ(newest.path, checkpoint_path(folder_, 40));
  EXPECT_EQ(newest.notes, Names());
  keep_newest(folder_, 1);
  EXPECT_EQ(names(), (Names{"step-00000020.ckpt", "step-00000040.ckpt", "step-00000040.ckpt.part-0badcafe",
                            "step-00000050.ckpt", "step-00000060.ckpt"}));
}

TEST_F(CheckpointFolder, OneThatIsOfAnotherStepThanItsNameIsPassedOver) {
  write(3);
  write(4);
  fs::rename(checkpoint_path(folder_, 4), checkpoint_path(folder_, 9));
  const NewestCheckpoint newest = newest_checkpoint(folder_);
  EXPECT_EQ(newest.path, checkpoint_path(folder_, 3));
  ASSERT_EQ(newest.notes.size(), 1u);
  EXPECT_NE(newest.notes[0].find("is of step 4: expected that of its name, 9"), std::string::npos)
      << newest.notes[0];
}

TEST_F(CheckpointFolder, AFolderThatIsAFileIsRefused) {
  write_bytes(path("file"), "x");
  expect_refused([&] { newest_checkpoint(path("file")); }, path("file"),
                 {"cannot be listed", "Not a directory"});
}

TEST_F(CheckpointFolder, TheNewestAreKept) {
  for (const std::int64_t step : {10, 20, 30, 40}) write(step);
  write_bytes(path("notes.txt"), "mine");
  keep_newest(folder_, 5);
  EXPECT_EQ(names().size(), 5U);
  keep_newest(folder_, 2);
  EXPECT_EQ(names(), (Names{"notes.txt", "step-00000030.ckpt", "step-00000040.ckpt"}));
  keep_newest(folder_, 1);
  EXPECT_EQ(names(), (Names{"notes.txt", "step-00000040.ckpt"}));
  EXPECT_EQ(error_of([&] { keep_newest(folder_, 0); }).kind(), ErrorKind::internal);
  keep_newest(path("no such folder"), 1);
}

TEST_F(CheckpointFolder, TheNewestThatCanBeReadIsNeverRemoved) {
  write(10);
  write(20);
  write_cut(30);
  write_cut(40);
  keep_newest(folder_, 1);
  EXPECT_EQ(names(), (Names{"step-00000020.ckpt", "step-00000030.ckpt", "step-00000040.ckpt"}));
  write_cut(20);
  keep_newest(folder_, 1);  // none can be read
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(CheckpointFolder, WhatKilledWritersLeftIsRemoved) {
  write(20);
  write_cut(30);
  write_bytes(checkpoint_path(folder_, 10) + ".part-0badcafe", "x");
  write_bytes(checkpoint_path(folder_, 20) + ".part-0badcafe", "x");
  write_bytes(checkpoint_path(folder_, 30) + ".part-0badcafe", "x");  // of a writer at work, perhaps
  write_bytes(path("other.part-0badcafe"), "x");
  keep_newest(folder_, 3);
  EXPECT_EQ(names(), (Names{"other.part-0badcafe", "step-00000020.ckpt", "step-00000030.ckpt",
                            "step-00000030.ckpt.part-0badcafe"}));
}

/// A checkpoint of half a megabyte, every value of which is its step.
Checkpoint uniform_checkpoint(std::int64_t step) {
  Checkpoint checkpoint = example_checkpoint();
  checkpoint.step = step;
  const std::vector<double> values(1 << 16, static_cast<double>(step));
  checkpoint.tensors = {{"w", TensorKind::weight, ElementType::f32, 1 << 8, 1 << 8, values},
                        {"w", TensorKind::moment1, ElementType::f32, 1 << 8, 1 << 8, values}};
  return checkpoint;
}

/// Writes one checkpoint after the other, from the step behind the newest, until it is killed.
[[noreturn]] void write_until_killed(const std::string& folder) {
  try {
    for (std::int64_t step = read_checkpoint(*newest_checkpoint(folder).path).step + 1;; ++step) {
      write_checkpoint(checkpoint_path(folder, step), uniform_checkpoint(step));
      keep_newest(folder, 2);
    }
  } catch (...) {
    _exit(1);
  }
}

TEST_F(CheckpointFolder, AKilledWriterLeavesOnlyCompleteCheckpoints) {
  write_checkpoint(checkpoint_path(folder_, 0), uniform_checkpoint(0));
  Random random(13);
  std::int64_t last = 0;
  for (int run = 0; run < 60; ++run) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_until_killed(folder_);
    usleep(static_cast<useconds_t>(random.below(30'000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";

    const NewestCheckpoint newest = newest_checkpoint(folder_);
    ASSERT_TRUE(newest.path.has_value());
    ASSERT_EQ(newest.notes, Names());
    for (const std::string& name : names()) {
      if (!name.ends_with(".ckpt")) continue;
      const Checkpoint read = read_checkpoint(path(name));
      ASSERT_EQ(checkpoint_path(folder_, read.step), path(name));
      ASSERT_EQ(read, uniform_checkpoint(read.step));
    }
    const std::int64_t step = read_checkpoint(*newest.path).step;
    ASSERT_GE(step, last);
    last = step;
  }
  // A kill between writing and removing leaves one more than two, and one within writing a part.
  keep_newest(folder_, 2);
  Names left = names();
  std::erase_if(left, [&](const std::string& name) { return name >= checkpoint_path("", last + 1); });
  EXPECT_LE(left.size(), 2U);
}

}  // namespace checkpoint_folder_test
}  // namespace dflop
