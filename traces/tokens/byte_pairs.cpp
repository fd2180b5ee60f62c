#include "traces/tokens/byte_pairs.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dflop {
namespace {

/// Spreads a number over all bits, as Fibonacci hashing does (Knuth, vol. 3, 6.4).
std::size_t spread(std::uint64_t number) {
  number *= 0x9E3779B97F4A7C15ull;
  return static_cast<std::size_t>(number ^ (number >> 32));
}

}  // namespace

std::int32_t BytePairs::find(std::string_view bytes) const {
  const auto found = ids_.find(bytes);
  return found == ids_.end() ? -1 : found->second;
}

std::uint64_t BytePairs::pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

BytePairs::Merge& BytePairs::slot_of(std::uint64_t pair) {
  const std::size_t mask = merges_.size() - 1;
  std::size_t at = spread(pair) & mask;
  while (merges_[at].pair != kNone && merges_[at].pair != pair) at = (at + 1) & mask;
  return merges_[at];
}

const BytePairs::Merge* BytePairs::find_merge(std::int32_t left, std::int32_t right) const {
  if (merges_.empty()) return nullptr;
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = merges_.size() - 1;
  std::size_t at = spread(pair) & mask;
  while (merges_[at].pair != kNone) {
    if (merges_[at].pair == pair) return &merges_[at];
    at = (at + 1) & mask;
  }
  return nullptr;
}

void BytePairs::grow() {
  std::vector<Merge> old(std::max<std::size_t>(merges_.size() * 2, 64));
  old.swap(merges_);
  for (const Merge& merge : old) {
    if (merge.pair != kNone) slot_of(merge.pair) = merge;
  }
}

void BytePairs::add_merge(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t joined) {
  if ((merge_count_ + 1) * 2 > merges_.size()) grow();
  const std::uint64_t pair = pair_of(left, right);
  Merge& slot = slot_of(pair);
  if (slot.pair == kNone) ++merge_count_;
  slot = {pair, rank, joined};
}

int BytePairs::set_bytes() {
  for (int byte = 0; byte < 256; ++byte) {
    const auto letter = static_cast<char>(byte);
    const std::int32_t id = find({&letter, 1});
    if (id < 0) return byte;
    byte_ids_[static_cast<std::size_t>(byte)] = id;
  }
  return -1;
}

void BytePairs::start_from_characters(const std::array<std::int32_t, 256>& byte_ids) {
  by_characters_ = true;
  byte_ids_ = byte_ids;
  for (std::size_t letter = 0; letter < ascii_ids_.size(); ++letter) {
    const auto character = static_cast<char>(letter);
    ascii_ids_[letter] = find({&character, 1});
  }
}

void BytePairs::encode(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
  const bool is_short = !word.empty() && word.size() <= WordCache::kLongestWord;
  WordCache::Slot& slot =
      cache.slots_[is_short ? std::hash<std::string_view>()(word) % WordCache::kSlots : 0];
  if (is_short && slot.length == word.size() &&
      std::memcmp(slot.word.data(), word.data(), word.size()) == 0) {
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
    return;
  }
  const std::size_t begin = ids.size();
  const std::int32_t whole = takes_whole_ ? find(word) : -1;
  if (whole >= 0) {
    ids.push_back(whole);
  } else {
    merge(word, cache, ids);
  }
  const std::size_t count = ids.size() - begin;
  if (!is_short || count > WordCache::kMaxIds) return;
  slot.length = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(count);
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), slot.ids.begin());
}

namespace {

/// Orders a heap so that the join with the lowest rank, and among these the leftmost, is on top.
constexpr auto kIsLater = [](const auto& a, const auto& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
};

}  // namespace

void BytePairs::add_join(WordCache& cache, std::int32_t at) const {
  if (at < 0) return;
  const WordCache::Part& left = cache.parts_[static_cast<std::size_t>(at)];
  if (left.after < 0) return;
  const std::int32_t right = cache.parts_[static_cast<std::size_t>(left.after)].id;
  const Merge* merge = find_merge(left.id, right);
  if (merge == nullptr) return;
  cache.joins_.push_back({merge->rank, at, left.id, right, merge->joined});
  std::push_heap(cache.joins_.begin(), cache.joins_.end(), kIsLater);
}

/// Adds a part for each character of a word, or for each of its bytes.
void BytePairs::add_characters(std::string_view word, WordCache& cache) const {
  const auto add = [&](std::int32_t id) {
    const auto at = static_cast<std::int32_t>(cache.parts_.size());
    cache.parts_.push_back({id, at - 1, at + 1});
  };
  for (std::size_t at = 0; at < word.size();) {
    const auto first = static_cast<unsigned char>(word[at]);
    std::size_t size = 1;
    while (at + size < word.size() && (static_cast<unsigned char>(word[at + size]) & 0xC0) == 0x80) ++size;
    const std::int32_t id = first < 0x80 ? ascii_ids_[first] : find(word.substr(at, size));
    if (id >= 0) {
      add(id);
    } else {
      for (const char byte : word.substr(at, size)) add(byte_ids_[static_cast<unsigned char>(byte)]);
    }
    at += size;
  }
  cache.parts_.back().after = -1;
}

void BytePairs::merge(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  std::vector<WordCache::Part>& parts = cache.parts_;
  parts.clear();
  cache.joins_.clear();
  if (by_characters_) add_characters(word, cache);
  const auto size = static_cast<std::int32_t>(by_characters_ ? parts.size() : word.size());
  for (std::int32_t at = 0; at < size && !by_characters_; ++at) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(at)]);
    parts.push_back({byte_ids_[byte], at - 1, at + 1 < size ? at + 1 : -1});
  }
  for (std::int32_t at = 0; at < size; ++at) add_join(cache, at);
  while (!cache.joins_.empty()) {
    const WordCache::Join join = cache.joins_.front();
    std::pop_heap(cache.joins_.begin(), cache.joins_.end(), kIsLater);
    cache.joins_.pop_back();
    WordCache::Part& left = parts[static_cast<std::size_t>(join.at)];
    if (left.id != join.left || left.after < 0) continue;
    WordCache::Part& right = parts[static_cast<std::size_t>(left.after)];
    if (right.id != join.right) continue;
    left.id = join.joined;
    left.after = right.after;
    right.id = -1;  // joins that begin there are stale
    if (left.after >= 0) parts[static_cast<std::size_t>(left.after)].before = join.at;
    add_join(cache, left.before);
    add_join(cache, join.at);
  }
  for (std::int32_t at = 0; at >= 0; at = parts[static_cast<std::size_t>(at)].after)
    ids.push_back(parts[static_cast<std::size_t>(at)].id);
}

}  // namespace dflop
