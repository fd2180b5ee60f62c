// Helpers shared by the tests of files on disk.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace dflop {

/// Returns the Error that `run` throws; the test fails if there is none.
template <typename Run>
Error error_of(Run run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an Error, found none";
  return Error(ErrorKind::internal, "");
}

/// Returns `text` with the only occurrence of `from` replaced by `to`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "no '" << from << "' in:\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// Expects that `run` throws an input error with this context, and that its message contains all `words`.
template <typename Run>
void expect_refused(Run run, const std::string& context, std::initializer_list<std::string_view> words) {
  const Error error = error_of(run);
  EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
  EXPECT_EQ(error.context(), context) << error.what();
  for (const std::string_view word : words) {
    EXPECT_NE(error.message().find(word), std::string::npos) << "no '" << word << "' in: " << error.message();
  }
}

}  // namespace dflop
