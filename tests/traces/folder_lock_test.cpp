#include "traces/text/text_file.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/traces/checkpoints/held_fixtures.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace folder_lock_test {

class FolderLockTest : public held_fixtures::PiecesTest {};

TEST_F(FolderLockTest, IsHeldByOneProcess) {
  std::optional<FolderLock> first = FolderLock::try_hold(folder_);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(FolderLock::try_hold(folder_).has_value());
  std::optional<FolderLock> moved(std::move(*first));
  first.reset();
  EXPECT_FALSE(FolderLock::try_hold(folder_).has_value()) << "the lock has moved on";
  moved.reset();
  EXPECT_TRUE(FolderLock::try_hold(folder_).has_value());
}

TEST_F(FolderLockTest, AKilledProcessHoldsNothing) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FolderLock::try_hold(folder_);
    const char held = lock ? 'y' : 'n';
    if (write(ready[1], &held, 1) != 1) _exit(1);
    pause();
    _exit(1);
  }
  char held = 0;
  ASSERT_EQ(read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_FALSE(FolderLock::try_hold(folder_).has_value());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(FolderLock::try_hold(folder_).has_value());
  close(ready[0]);
  close(ready[1]);
}

TEST_F(FolderLockTest, AFolderThatTakesNoFileIsAnError) {
  const Error error = error_of([&] { FolderLock::try_hold(path("no such folder")); });
  EXPECT_EQ(error.kind(), ErrorKind::output);
  EXPECT_EQ(error.context(), path("no such folder/.lock"));
}

}  // namespace folder_lock_test
}  // namespace dflop
