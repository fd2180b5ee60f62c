// Checks the message of an input Error.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace dflop::testing {

/// Returns the message of the Error that `act` throws, which must be an input error, or an empty string if it
/// throws none.
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
