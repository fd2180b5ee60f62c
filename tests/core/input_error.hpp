// Tests look at what an Error of input says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace dflop::testing {

/// Returns what the Error that `act` ends in says, which is to be one of input; nothing where there is none.
template <typename Act>
std::string input_error(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return {};
}

}  // namespace dflop::testing
