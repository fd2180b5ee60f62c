// Error is dflop's exception type. The only other one is OutOfMemory (core/out_of_memory.hpp). Infeasible
// plans, time limits and plans that would run out of memory are values, not exceptions.
#pragma once

#include <stdexcept>
#include <string>

namespace dflop {

/// An ErrorKind says why something failed, and decides the exit code.
enum class ErrorKind {
  usage,       ///< the command line is wrong (exit 2)
  input,       ///< a file or value given by the user is wrong (exit 2)
  output,      ///< a result cannot be written where the user asked for it (exit 2)
  infeasible,  ///< nothing satisfies the request (exit 3)
  no_device,   ///< a device or a library for it is not available (exit 4)
  internal,    ///< a bug in our own code (exit 1)
};

/// An Error says what went wrong and where, what was expected and what was found.
class Error : public std::runtime_error {
 public:
  /// `context` is the place, for example "file:line", "file:row 7, column 'fps'" or "plan.json: key
  /// 'llm.tp'"; it may be empty.
  Error(ErrorKind kind, const std::string& message, const std::string& context = "")
      : std::runtime_error(without_zeros(context.empty() ? message : context + ": " + message)),
        kind_(kind),
        message_(message),
        context_(context) {}

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& context() const { return context_; }

  /// Returns the process exit code listed in docs/cli.md.
  int exit_code() const {
    switch (kind_) {
      case ErrorKind::usage:
      case ErrorKind::input:
      case ErrorKind::output:
        return 2;
      case ErrorKind::infeasible:
        return 3;
      case ErrorKind::no_device:
        return 4;
      case ErrorKind::internal:
        break;
    }
    return 1;
  }

 private:
  /// Writes zero bytes, which names in files may contain, as \0, because what() would end there.
  static std::string without_zeros(std::string text) {
    for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\0");
    return text;
  }

  ErrorKind kind_;
  std::string message_;
  std::string context_;
};

}  // namespace dflop
