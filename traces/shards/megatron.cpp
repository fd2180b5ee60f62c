#include "traces/shards/megatron.hpp"

#include <algorithm>
#include <cstring>

#include "core/refuse.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::size_t kHeader = 34;  // magic, version, type code of ids, numbers of sequences and documents
constexpr std::size_t kCodeAt = 17;
constexpr unsigned kInt32 = 4;
constexpr unsigned kUint16 = 8;

/// Returns a little-endian number of a file.
template <typename Number>
Number number_at(const Mapping& file, std::size_t offset) {
  Number number;
  std::memcpy(&number, file.bytes().data() + offset, sizeof number);
  return number;
}

}  // namespace

MegatronFile::MegatronFile(const std::string& prefix, std::int64_t vocabulary)
    : index_path_(prefix + ".idx"),
      data_path_(prefix + ".bin"),
      vocabulary_(vocabulary),
      index_(index_path_),
      data_bytes_(ReadableFile(data_path_).size()) {
  const std::size_t bytes = index_.bytes().size();
  if (bytes < kHeader || std::memcmp(index_.bytes().data(), kMagic.data(), kMagic.size()) != 0)
    refuse_input(index_path_,
                 "expected 'MMIDIDX' and a header of {} bytes, found another kind or fewer bytes", kHeader);
  const auto version = number_at<std::uint64_t>(index_, 9);
  if (version != 1) refuse_input(offset_place(index_path_, 9), "expected version 1, found {}", version);
  const unsigned code = number_at<std::uint8_t>(index_, kCodeAt);
  if (code != kInt32 && code != kUint16) {
    refuse_input(offset_place(index_path_, kCodeAt),
                 "expected ids of 32 bits (code 4) or 16 bits unsigned (code 8), found code {}", code);
  }
  id_bytes_ = code == kInt32 ? 4 : 2;
  const auto sequences = number_at<std::uint64_t>(index_, 18);
  const auto documents = number_at<std::uint64_t>(index_, 26);
  // Reject numbers beyond the file's size first, so that the sum cannot overflow.
  const std::size_t places = kHeader + sequences * 12 + documents * 8;
  has_modes_ = sequences > 0 && places + sequences == bytes;
  if (sequences > bytes || documents > bytes || (places != bytes && !has_modes_)) {
    refuse_input(offset_place(index_path_, 18),
                 "expected {} bytes for the numbers of sequences and documents, found {} and {}", bytes,
                 sequences, documents);
  }
  sequences_ = sequences;
  check_sequences();
  check_documents(documents);
}

void MegatronFile::check_sequences() const {
  const std::size_t data = data_bytes_;
  std::size_t left =
      data / id_bytes_;  // in ids; overlapping sequences thus cannot make up any number of samples
  for (std::size_t i = 0; i < sequences_; ++i) {
    const auto length = number_at<std::int32_t>(index_, kHeader + i * 4);
    const auto pointer = number_at<std::int64_t>(index_, kHeader + sequences_ * 4 + i * 8);
    const bool is_within =
        length >= 0 && pointer >= 0 && static_cast<std::size_t>(pointer) <= data &&
        static_cast<std::size_t>(length) * id_bytes_ <= data - static_cast<std::size_t>(pointer);
    if (!is_within) {
      refuse_input(offset_place(index_path_, kHeader + i * 4),
                   "expected sequence {} within the {} bytes of {}, found {} ids from byte {}", i, data,
                   data_path_, length, pointer);
    }
    if (pointer % static_cast<std::int64_t>(id_bytes_) != 0) {
      refuse_input(offset_place(index_path_, kHeader + sequences_ * 4 + i * 8),
                   "expected sequence {} at a multiple of its ids' {} bytes, found {}", i, id_bytes_,
                   pointer);
    }
    if (static_cast<std::size_t>(length) > left) {
      refuse_input(
          offset_place(index_path_, kHeader + i * 4),
          "expected at most {} ids in all sequences, as many as {} has, found more with the {} of sequence {}",
          data / id_bytes_, data_path_, length, i);
    }
    left -= static_cast<std::size_t>(length);
  }
}

void MegatronFile::check_documents(std::size_t documents) const {
  const std::size_t begin = kHeader + sequences_ * 12;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < documents; ++i) {
    const auto first = number_at<std::int64_t>(index_, begin + i * 8);
    if (first < before || first > static_cast<std::int64_t>(sequences_)) {
      refuse_input(offset_place(index_path_, begin + i * 8),
                   "expected a document whose first sequence is from {} to {}, found {}", before, sequences_,
                   first);
    }
    before = first;
  }
}

std::size_t MegatronFile::length(std::size_t sequence) const {
  return static_cast<std::size_t>(number_at<std::int32_t>(index_, kHeader + sequence * 4));
}

std::string_view MegatronFile::index_bytes() const {
  return {reinterpret_cast<const char*>(index_.bytes().data()), index_.bytes().size()};
}

std::size_t MegatronFile::offset_of(std::size_t sequence, std::size_t token) const {
  const auto pointer = number_at<std::int64_t>(index_, kHeader + sequences_ * 4 + sequence * 8);
  return static_cast<std::size_t>(pointer) + token * id_bytes_;
}

std::string MegatronFile::place_of(std::size_t sequence, std::size_t token) const {
  return offset_place(data_path_, offset_of(sequence, token));
}

void MegatronFile::read(std::size_t sequence, std::size_t begin, std::span<std::int32_t> ids) const {
  const std::size_t at = offset_of(sequence, begin);
  const ReadableFile data(data_path_);
  if (id_bytes_ == 2) {
    std::vector<std::uint16_t> narrow(ids.size());
    data.read(at, narrow.data(), narrow.size() * sizeof narrow[0]);
    std::copy(narrow.begin(), narrow.end(), ids.begin());
  } else {
    data.read(at, ids.data(), ids.size_bytes());
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary_) continue;
    refuse_input(place_of(sequence, begin + i),
                 "expected an id from 0 to {}, the vocabulary's last, found {}", vocabulary_ - 1, ids[i]);
  }
}

std::vector<std::int32_t> MegatronFile::read(std::size_t sequence) const {
  std::vector<std::int32_t> ids(length(sequence));
  read(sequence, 0, ids);
  return ids;
}

}  // namespace dflop
