#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/memory_file.hpp"
#include "traces/shards/megatron.hpp"

namespace {

using namespace dflop;
namespace fs = std::filesystem;

/// A folder that gives files in memory the names that a data set needs.
class LinkedNames {
 public:
  LinkedNames() : folder_(fs::temp_directory_path() / ("dflop_idx_fuzz_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~LinkedNames() { fs::remove_all(folder_); }
  LinkedNames(const LinkedNames&) = delete;
  LinkedNames& operator=(const LinkedNames&) = delete;

  std::string prefix() const { return (folder_ / "a").string(); }
  void link(const MemoryFile& file, const std::string& ending) const {
    fs::remove(prefix() + ending);
    fs::create_symlink(file.path(), prefix() + ending);
  }

 private:
  fs::path folder_;
};

/// The .bin has 64 ids of 32 bits, the last half of them negative.
std::string ids_of_data() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

void read_index(std::string_view bytes) {
  static const LinkedNames names;
  static const MemoryFile data(ids_of_data());
  const MemoryFile index(bytes);
  names.link(index, ".idx");
  names.link(data, ".bin");
  const MegatronFile file(names.prefix());
  for (std::size_t i = 0; i < file.size(); ++i) {
    const std::vector<std::int32_t> ids = file.read(i);
    require(ids.size() == file.length(i));
    std::vector<std::int32_t> half(ids.size() / 2);
    file.read(i, ids.size() - half.size(), half);
    require(std::equal(half.rbegin(), half.rend(), ids.rbegin()));
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return run_fuzz_target(data, size, read_index);
}
