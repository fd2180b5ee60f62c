#include "core/support/shared_library.hpp"

#include <fmt/format.h>

namespace dflop {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                             const std::string& purpose) {
  std::vector<std::string> places;
  for (const std::string& name : names) {
    places.push_back(name);
    for (const std::string& folder : folders) places.push_back(fmt::format("{}/{}", folder, name));
  }
  std::string reasons;
  for (const std::string& place : places) {
    handle_ = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = place;
      return;
    }
    const char* reason = ::dlerror();
    reasons += std::string("; ") + (reason != nullptr ? reason : place.c_str());
  }
  throw Error(ErrorKind::no_device, "a library for " + purpose + " cannot be loaded" + reasons +
                                        "; if it is installed, add its folder to LD_LIBRARY_PATH");
}

void* SharedLibrary::symbol(const std::string& name) const {
  void* address = ::dlsym(handle_, name.c_str());
  if (address == nullptr)
    throw Error(ErrorKind::no_device,
                name_ + " has no '" + name + "'; expected a newer version of the library");
  return address;
}

}  // namespace dflop
