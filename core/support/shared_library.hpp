// A SharedLibrary is loaded with dlopen() when it is constructed, instead of being linked. So only runs that
// use cuBLAS, cuDNN, NCCL or oneDNN need these libraries.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace dflop {

/// A SharedLibrary stays loaded until the process ends, because its threads and callbacks may still run.
class SharedLibrary {
 public:
  /// Tries `names` in order, each first as the dynamic linker finds it and then in each of `folders`, and
  /// loads the first that it can. `purpose` is for messages: "matrix products on a GPU".
  /// @throws Error (no_device) that lists each name with the linker's reason.
  SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                const std::string& purpose);

  /// Returns the address of the function or variable with this name.
  /// @throws Error (no_device) if the library has none, for example because it is too old.
  void* symbol(const std::string& name) const;
  /// Returns what was loaded: one of `names`, or its path in one of `folders`.
  const std::string& name() const { return name_; }

 private:
  void* handle_ = nullptr;
  std::string name_;
};

/// An AnyFunction is the address of a function found by name. It converts to the function pointer type that
/// it is assigned to.
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

/// A FunctionTable is the base of tables of a library's functions. Their members look up their functions by
/// name:
///
///     struct Clock : FunctionTable {
///       using FunctionTable::FunctionTable;
///       decltype(&::time) now = function("time");
///     };
///
/// Without a library all members are null; tests set them to their own functions.
class FunctionTable {
 public:
  FunctionTable() = default;
  explicit FunctionTable(SharedLibrary library) : library_(std::move(library)) {}

 protected:
  /// @throws what SharedLibrary::symbol() throws
  AnyFunction function(const std::string& name) const {
    return AnyFunction(library_ ? library_->symbol(name) : nullptr);
  }

 private:
  std::optional<SharedLibrary> library_;
};

}  // namespace dflop
