// What the tests of files on disk share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace dflop {

/// The Error that `run` ends in; the test fails if there is none.
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

/// `text` with the one place where `from` stands changed to `to`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "no '" << from << "' in:\n" << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// Expects that `run` ends in an input error with this place, whose message holds all of `words`.
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
