#include "backend/run/worlds.hpp"

#include <gtest/gtest.h>

#include "backend/gpus.hpp"
#include "core/error.hpp"

namespace dflop {
namespace worlds_test {

TEST(Worlds, TheHostIsAvailable) {
  const auto world = make_world("host", 3);
  EXPECT_EQ(world->device_name(), "host");
  EXPECT_EQ(world->ranks(), 3);
  EXPECT_EQ(world->local_ranks(), (std::vector<int>{0, 1, 2}));
}

TEST(Worlds, AnotherNameIsAnErrorOfUsage) {
  try {
    make_world("tpu", 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(error.message(), "option '--device': expected host or cuda or nccl, found 'tpu'");
  }
}

/// Every kind in the table is found by its name, and makes a World with the requested number of ranks in one
/// process or names the missing requirement.
TEST(Worlds, EveryKindMakesItsWorldOrNamesAMissingRequirement) {
  for (const WorldKind& kind : world_kinds()) {
    const std::string name(kind.name);
    EXPECT_EQ(&world_kind(name), &kind);
    EXPECT_NE(kind.what, "") << name;
    try {
      kind.require();
      const auto world = make_world(name, 2);
      EXPECT_EQ(world->ranks(), 2) << name;
      EXPECT_EQ(world->local_ranks().size(), kind.processes ? 1U : 2U) << name;
    } catch (const Error& error) {
      EXPECT_FALSE(kind.on_host) << error.message();
      EXPECT_EQ(error.kind(), kind.processes ? ErrorKind::usage : ErrorKind::no_device) << error.message();
    }
  }
}

/// As in `dflop devices`: either a GPU is usable, or both explain why not.
TEST(Worlds, AGpuIsUsableOrItsAbsenceIsExplained) {
  std::string reason;
  try {
    cuda_devices();
  } catch (const Error& error) {
    reason = error.message();
  }
  try {
    EXPECT_EQ(make_world("cuda", 2)->ranks(), 2);
    EXPECT_EQ(reason, "");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    EXPECT_EQ(error.message(), reason);
  }
}

}  // namespace worlds_test
}  // namespace dflop
