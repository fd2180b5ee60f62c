#include "traces/dataset/stored_file.hpp"

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::uint64_t kMaxMediumBytes = std::uint64_t{1} << 30;

/// Calls `use`, and names the medium in its errors.
template <typename Use>
void with_place(const StoredMedium& stored, const Use& use) {
  try {
    use();
  } catch (const Error& error) {
    throw Error(error.kind(), error.message() + stored.hint, stored.place);
  }
}

}  // namespace

StoredFile::StoredFile(const StoredMedium& stored) : stored_(stored) {
  with_place(stored, [&] { file_.emplace(stored.file); });
  size_ = stored.size == StoredMedium::kToEnd ? file_->size() : stored.size;
}

std::string StoredFile::read(std::uint64_t count) const {
  if (stored_.size == StoredMedium::kToEnd && count > kMaxMediumBytes)
    refuse_input(stored_.place, "expected a file of at most {} bytes, found {}", kMaxMediumBytes, count);
  std::string bytes(count, '\0');
  with_place(stored_, [&] { file_->read(stored_.offset, bytes.data(), count); });
  return bytes;
}

std::string StoredFile::png_headers() const {
  std::string headers;
  with_place(stored_, [&] {
    headers = dflop::png_headers(size_, [&](std::uint64_t offset, char* to, std::size_t count) {
      file_->read(stored_.offset + offset, to, count);
    });
  });
  return headers;
}

}  // namespace dflop
