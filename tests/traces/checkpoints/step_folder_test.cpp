#include "traces/checkpoints/folder.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/traces/checkpoints/held_fixtures.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace step_folder_test {

using namespace held_fixtures;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class StepFolder : public PiecesTest {
 protected:
  void write(std::int64_t step) const { write_step(folder_, step, two_ranks()); }

  void damage(std::int64_t step) const {
    const std::string file = step_folder(folder_, step) + "/rank-00001.safetensors";
    std::string bytes = bytes_in(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put_bytes(file, bytes);
  }
};

TEST_F(StepFolder, PathsSortByStep) {
  EXPECT_EQ(step_folder("out", 50), "out/step-00000050");
  EXPECT_EQ(step_folder("out/", 0), "out/step-00000000");
  EXPECT_EQ(step_folder("", 1234567890123), "step-1234567890123");
}

TEST_F(StepFolder, ACheckpointHasTheFilesOfItsRanksAndAnIndex) {
  write(50);
  EXPECT_EQ(names(), (Names{"step-00000050"}));
  folder_ = path("step-00000050");
  EXPECT_EQ(names(), (Names{"checkpoint.json", "rank-00000.safetensors", "rank-00001.safetensors"}));
}

TEST_F(StepFolder, NewestIsTheHighestStep) {
  EXPECT_EQ(newest_step(step_paths(path("no such folder"))).path, std::nullopt);
  EXPECT_EQ(newest_step(step_paths(folder_)).path, std::nullopt);
  for (const std::int64_t step : {100, 9, 99, 99'999'999, 100'000'000}) write(step);
  for (const char* name : {"step-999999999999.ckpt", "step-0999999999", "xstep-999999999", "step--9999999"}) {
    fs::copy(step_folder(folder_, 100), path(name), fs::copy_options::recursive);
  }
  EXPECT_EQ(newest_step(step_paths(folder_)).path, step_folder(folder_, 100'000'000));
  EXPECT_EQ(newest_step(step_paths(folder_)).notes, Names());
}

TEST_F(StepFolder, ADamagedCheckpointIsIgnoredWithANote) {
  for (const std::int64_t step : {10, 20, 30}) write(step);
  damage(30);
  const NewestStep newest = newest_step(step_paths(folder_));
  EXPECT_EQ(newest.path, step_folder(folder_, 20));
  ASSERT_EQ(newest.notes.size(), 1U);
  EXPECT_EQ(newest.notes[0].find(step_folder(folder_, 30) + "/rank-00001.safetensors: damaged"), 0U);
  damage(20);
  damage(10);
  EXPECT_EQ(newest_step(step_paths(folder_)).path, std::nullopt);
  EXPECT_EQ(newest_step(step_paths(folder_)).notes.size(), 3U);
}

/// The second file is damaged.
TEST_F(StepFolder, SharesOfOneAreLookedAt) {
  write(10);
  damage(10);
  const std::string one = step_folder(folder_, 10);
  EXPECT_NO_THROW(verify_step(one, [](std::size_t file) { return file != 1; }));
  expect_refused([&] { verify_step(one, [](std::size_t file) { return file == 1; }); },
                 one + "/rank-00001.safetensors", {"damaged"});
}

TEST_F(StepFolder, ACheckpointOfAnotherStepThanItsNameIsIgnored) {
  write(3);
  write(4);
  fs::rename(step_folder(folder_, 4), step_folder(folder_, 9));
  const NewestStep newest = newest_step(step_paths(folder_));
  EXPECT_EQ(newest.path, step_folder(folder_, 3));
  ASSERT_EQ(newest.notes.size(), 1U);
  EXPECT_NE(newest.notes[0].find("holds step 4, expected step 9, as its name says"), std::string::npos);
}

TEST_F(StepFolder, ADamagedOneIsReplaced) {
  write(10);
  write(20);
  damage(20);
  put_bytes(step_folder(folder_, 20) + "/rank-00007.safetensors", "of a plan with more ranks");
  write(20);
  EXPECT_EQ(newest_step(step_paths(folder_)).path, step_folder(folder_, 20));
  EXPECT_EQ(newest_step(step_paths(folder_)).notes, Names());
  EXPECT_FALSE(fs::exists(step_folder(folder_, 20) + "/rank-00007.safetensors"));
}

TEST_F(StepFolder, LeftoversOfKilledWritersAreRemoved) {
  write(10);
  for (const char* part : {"step-00000010.part", "step-00000020.part"}) {
    fs::copy(step_folder(folder_, 10), path(part), fs::copy_options::recursive);
  }
  fs::create_directories(path("other.part"));
  EXPECT_EQ(newest_step(step_paths(folder_)).path, step_folder(folder_, 10));
  const std::string part = begin_checkpoint(folder_, 20);
  EXPECT_EQ(part, path("step-00000020.part"));
  EXPECT_TRUE(fs::is_empty(part));
  EXPECT_EQ(names(), (Names{"other.part", "step-00000010", "step-00000020.part"}));
}

TEST_F(StepFolder, TheNewestAreKept) {
  for (const std::int64_t step : {10, 20, 30, 40, 50}) write(step);
  put_bytes(path("notes.txt"), "mine");
  fs::create_directories(path("step-00000015"));  // not a checkpoint: it has no index
  damage(50);
  keep_newest_steps(folder_, 40, 9);
  EXPECT_EQ(names().size(), 7U);
  keep_newest_steps(folder_, 40, 2);
  EXPECT_EQ(names(),
            (Names{"notes.txt", "step-00000015", "step-00000030", "step-00000040", "step-00000050"}));
  keep_newest_steps(folder_, 40, 1);
  EXPECT_EQ(names(), (Names{"notes.txt", "step-00000015", "step-00000040", "step-00000050"}));
  EXPECT_EQ(error_of([&] { keep_newest_steps(folder_, 40, 0); }).kind(), ErrorKind::internal);
  keep_newest_steps(path("no such folder"), 1, 1);
}

/// Of 10, 15 and the damaged 20, the newest intact checkpoint is 15. After 40 is written, the two newest
/// intact ones are 40 and 15.
TEST_F(StepFolder, IgnoredCheckpointsAreNotCounted) {
  for (const std::int64_t step : {10, 15, 20}) write(step);
  damage(20);
  fs::create_directories(path("step-00000020.unreadable/of before"));
  EXPECT_EQ(set_aside_steps(folder_, 15), Names{path("step-00000020.unreadable")});
  EXPECT_EQ(set_aside_steps(folder_, 15), Names());
  write(40);
  keep_newest_steps(folder_, 40, 2);
  EXPECT_EQ(names(), (Names{"step-00000015", "step-00000020.unreadable", "step-00000040"}));
  EXPECT_TRUE(fs::exists(path("step-00000020.unreadable/checkpoint.json")));
  EXPECT_EQ(newest_step(step_paths(folder_)).notes, Names());
}

TEST_F(StepFolder, EntriesNamedLikeACheckpointAreReported) {
  write(10);
  put_bytes(path("step-00000020"), "a file");
  fs::create_directories(path("step-00000030"));
  fs::create_symlink("nowhere", path("step-00000040"));
  fs::create_directories(path("step-00000045"));  // not a multiple of ten
  EXPECT_EQ(taken_step_paths(folder_, 50, 10),
            (Names{path("step-00000020"), path("step-00000030"), path("step-00000040")}));
  EXPECT_EQ(taken_step_paths(folder_, 45, 0), (Names{path("step-00000045")}));
  EXPECT_EQ(newest_step(step_paths(folder_)).path, step_folder(folder_, 10));
}

TEST_F(StepFolder, AFolderThatIsAFileIsRejected) {
  put_bytes(path("file"), "x");
  expect_refused([&] { newest_step(step_paths(path("file"))); }, path("file"), {"cannot be listed"});
  EXPECT_EQ(error_of([&] { begin_checkpoint(path("file"), 1); }).context(), path("file"));
}

/// Writes one checkpoint after another, starting after the newest step, until the process is killed.
[[noreturn]] void write_steps_until_killed(const std::string& folder) {
  try {
    for (std::int64_t step = CheckpointReader(*newest_step(step_paths(folder)).path).index().step + 1;;
         ++step) {
      write_step(folder, step, two_ranks());
      keep_newest_steps(folder, step, 2);
    }
  } catch (...) {
    _exit(1);
  }
}

TEST_F(StepFolder, AKilledWriterLeavesOnlyCompleteCheckpoints) {
  write(0);
  Random random(13);
  std::int64_t last = 0;
  for (int run = 0; run < 40; ++run) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_steps_until_killed(folder_);
    // Some writers are killed at any time, others only after their first checkpoint.
    while (run % 4 == 0 && !fs::exists(step_folder(folder_, last + 1))) usleep(100);
    usleep(static_cast<useconds_t>(random.below(10'000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    int complete = 0;
    for (const std::string& name : names()) {
      if (name.ends_with(".part")) continue;
      const CheckpointReader reader(path(name));
      reader.verify();
      ASSERT_EQ(step_folder(folder_, reader.index().step), path(name));
      ++complete;
    }
    ASSERT_GE(complete, 1);
    const std::int64_t step = CheckpointReader(*newest_step(step_paths(folder_)).path).index().step;
    ASSERT_GE(step, last);
    last = step;
  }
  EXPECT_GE(last, 10);
  // Each kill between the rename and the removal of the third folder leaves one more.
  begin_checkpoint(folder_, last + 1);
  keep_newest_steps(folder_, last, 2);
  EXPECT_LE(names().size(), 3U);
}

}  // namespace step_folder_test
}  // namespace dflop
