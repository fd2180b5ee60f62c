#include "backend/device.hpp"

#include <gtest/gtest.h>

#include <string>

namespace dflop {
namespace memory_account_test {

TEST(MemoryAccount, ErrorsSayNeededAndFreeMemory) {
  MemoryAccount account("rank 3 on a GPU", Bytes{1000});
  account.check(600);
  account.add(600);
  account.check(400);
  try {
    account.check(401);
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(),
                 "rank 3 on a GPU: 401 bytes more are needed, 400 bytes are left; its limit is "
                 "1000 bytes");
    EXPECT_EQ(error.needed(), Bytes{401});
    EXPECT_EQ(error.available(), Bytes{400});
  }
  EXPECT_EQ(account.in_use(), Bytes{600});
}

TEST(MemoryAccount, WithoutALimitOnlyTheMachineRejects) {
  MemoryAccount account("rank 0", {});
  EXPECT_NO_THROW(account.check(std::size_t{1} << 50));
  try {
    account.refused(std::size_t{3} << 30, Bytes{std::int64_t{1} << 29});
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(),
                 "rank 0: 3.00 GiB more are needed, 0.50 GiB are left; the machine has no more");
  }
}

TEST(MemoryAccount, KeepsThePeakSinceTheLastReset) {
  MemoryAccount account("rank 0", {});
  account.add(10);
  account.add(20);
  account.remove(20);
  EXPECT_EQ(account.most_in_use(), Bytes{30});
  account.reset_most_in_use();
  EXPECT_EQ(account.most_in_use(), Bytes{10});
  account.add(5);
  EXPECT_EQ(account.most_in_use(), Bytes{15});
}

}  // namespace memory_account_test
}  // namespace dflop
