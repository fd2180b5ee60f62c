// Libraries that are loaded when they are first used: large ones of GPUs, that most runs do without.
#pragma once

#include <string>
#include <vector>

namespace dflop {

/// Stays loaded until the process ends, as what it has started may.
class SharedLibrary {
 public:
  /// Loads the first of `names` that can be, as the dynamic linker finds them or, in `folders`, by path.
  /// `purpose` is for messages: "matrix products on a GPU".
  /// @throws Error (no_device) that has each name with the linker's reason.
  SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                const std::string& purpose);

  /// @throws Error (no_device) where the library has none of that name, as older versions may.
  void* symbol(const std::string& name) const;

  /// Sets a pointer to a function.
  template <typename Function>
  void load(Function*& function, const std::string& name) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }

  const std::string& name() const { return name_; }  ///< of that which was loaded

 private:
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace dflop
