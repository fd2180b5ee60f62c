// A SharedLibrary is loaded when it is first used, as large ones of GPUs, that most runs do without.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace dflop {

/// A SharedLibrary stays loaded until the process ends, as what it has started may.
class SharedLibrary {
 public:
  /// Loads the first of `names` that can be, as the dynamic linker finds them or, in `folders`, by path.
  /// `purpose` is for messages: "matrix products on a GPU".
  /// @throws Error (no_device) that has each name with the linker's reason.
  SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                const std::string& purpose);

  /// Returns the address of the function or variable of that name.
  /// @throws Error (no_device) where the library has none, as older versions may.
  void* symbol(const std::string& name) const;
  const std::string& name() const { return name_; }  ///< of that which was loaded

 private:
  void* handle_ = nullptr;
  std::string name_;
};

/// An AnyFunction was found by its name, and becomes a pointer of whatever type it is assigned to.
class AnyFunction {
 public:
  explicit AnyFunction(void* address) : address_(address) {}
  template <typename Function>
  operator Function*() const {  // NOLINT: it is one
    return reinterpret_cast<Function*>(address_);
  }

 private:
  void* address_;
};

/// A FunctionTable is what tables of a library's functions derive from, whose members then find their
/// functions by name:
///
///     struct Clock : FunctionTable {
///       using FunctionTable::FunctionTable;
///       decltype(&::time) now = function("time");
///     };
///
/// Without a library all members are null; tests set them to functions of their own.
class FunctionTable {
 public:
  FunctionTable() = default;
  explicit FunctionTable(SharedLibrary library) : library_(std::move(library)) {}

 protected:
  /// @throws as SharedLibrary::symbol()
  AnyFunction function(const std::string& name) const {
    return AnyFunction(library_ ? library_->symbol(name) : nullptr);
  }

 private:
  std::optional<SharedLibrary> library_;
};

}  // namespace dflop
