#include "tests/cuda_on_host/emulation/block.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace dflop::emulation {
namespace {

constexpr std::size_t kSharedAlignment = 1024;
constexpr std::size_t kBand = 1024;  ///< guard bytes after a block's shared memory
constexpr char kUntouched = 0x5a;

}  // namespace

Block& block() {
  static Block& one = *new Block;  // never freed, like the stacks of the threads
  return one;
}

void Block::run(dim3 size, std::size_t shared_bytes, WarpOrder order, const std::function<void()>& kernel) {
  start(size, shared_bytes);
  order_ = order;
  random_.seed(static_cast<unsigned>(number_));
  kernel_ = &kernel;
  warp_ = next_warp();
  lane_ = next_lane(warp().ready);
  threadIdx = thread().index;
  caller_.switch_to(*thread().fiber);
  if (failure_.empty() && !std::all_of(shared_ + shared_bytes_, shared_ + shared_bytes_ + kBand,
                                       [](char byte) { return byte == kUntouched; })) {
    failure_ = "memory behind the block's shared memory was written";
  }
  if (failure_.empty()) return;
  threads_.clear();  // their fibers stopped inside the kernel
  throw std::runtime_error(std::exchange(failure_, {}));
}

void Block::start(dim3 size, std::size_t shared_bytes) {
  ++number_;
  alive_ = static_cast<int>(size.x * size.y * size.z);
  memory_.resize(kMaxShared + kSharedAlignment + kBand);
  const auto unaligned = reinterpret_cast<std::uintptr_t>(memory_.data());
  shared_ = memory_.data() + (kSharedAlignment - unaligned % kSharedAlignment) % kSharedAlignment;
  shared_bytes_ = shared_bytes;
  std::memset(shared_, kPoison, shared_bytes);
  std::memset(shared_ + shared_bytes, kUntouched, kBand);
  barriers_ = {};
  warps_.assign(static_cast<std::size_t>((alive_ + kLanes - 1) / kLanes), {});
  for (int number = 0; number < alive_; ++number) {
    Warp& warp = warps_[static_cast<std::size_t>(number / kLanes)];
    warp.all |= std::uint32_t{1} << number % kLanes;
    warp.ready = warp.all;
  }
  if (threads_.size() < static_cast<std::size_t>(alive_)) threads_.resize(static_cast<std::size_t>(alive_));
  for (unsigned number = 0; number < static_cast<unsigned>(alive_); ++number) {
    Thread& thread = threads_[number];
    thread.index = dim3(number % size.x, number / size.x % size.y, number / size.x / size.y);
    if (!thread.fiber) thread.fiber = std::make_unique<Fiber>([this] { run_thread(); });
  }
}

/// Runs this thread's part of one block after the other.
void Block::run_thread() {
  for (;;) {
    (*kernel_)();
    end_thread();
  }
}

void Block::end_thread() {
  if (!thread().copies.empty()) fail("a thread ends without having waited for its copies");
  warp().ready &= ~bit();
  --alive_;
  if (alive_ == 0) {
    thread().fiber->switch_to(caller_);
    return;
  }
  Barrier& barrier = barriers_[0];
  if (barrier.come > 0 && barrier.come == alive_) release(barrier);
  go_on(true);
}

void Block::fail(std::string what) {
  failure_ = std::move(what);
  thread().fiber->switch_to(caller_);
  std::abort();  // never switched to again
}

bool Block::wait_at(int number, int threads, bool mine) {
  if (number < 0 || number >= std::ssize(barriers_)) fail("there is no barrier " + std::to_string(number));
  Barrier& barrier = barriers_[static_cast<std::size_t>(number)];
  if (threads % kLanes != 0)
    fail("a barrier waits for " + std::to_string(threads) + " threads, no whole warps");
  if (barrier.come > 0 && barrier.expected != threads) fail("threads expect different numbers at a barrier");
  barrier.expected = threads;
  barrier.any = barrier.any || mine;
  warp().ready &= ~bit();
  barrier.waiting[static_cast<std::size_t>(warp_)] |= bit();
  const bool complete = ++barrier.come == (threads == 0 ? alive_ : threads);
  if (complete) release(barrier);
  go_on(!complete);
  return barrier.result;  // unchanged until this thread waits again
}

void Block::release(Barrier& barrier) {
  for (std::size_t warp = 0; warp < warps_.size(); ++warp) warps_[warp].ready |= barrier.waiting[warp];
  barrier = {.result = barrier.any};
}

/// Returns true in the last lane to arrive, which does the work for all. The other lanes return after it has
/// done so.
bool Block::join_warp(const void* operation, void* mine) {
  Warp& own = warp();
  if (own.come != 0 && own.operation != operation) fail("lanes of a warp meet in different operations");
  own.operation = operation;
  own.arguments[static_cast<std::size_t>(lane_)] = mine;
  own.come |= bit();
  if (own.come == ~std::uint32_t{0}) return true;
  own.ready &= ~bit();
  go_on(true);
  return false;
}

void Block::release_warp() {
  warp().come = 0;
  warp().ready = warp().all;
  if (order_ == WarpOrder::drawn && random_() % 8 == 0) go_on(false);
}

void Block::begin_copy(unsigned to, const void* from, std::size_t bytes, bool inside) {
  char* place = shared_at(to, bytes);
  if (reinterpret_cast<std::uintptr_t>(from) % bytes != 0) fail("a copy's source is not aligned");
  std::memset(place, kPoison, bytes);
  thread().copies.push_back({place, from, bytes, inside});
}

void Block::wait_copies() {
  for (const Copy& copy : thread().copies) {
    if (copy.inside) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  thread().copies.clear();
}

char* Block::shared_at(unsigned address, std::size_t bytes) {
  if (address % bytes != 0) fail("shared address " + std::to_string(address) + " is not aligned");
  if (address + bytes > shared_bytes_) {
    fail("shared address " + std::to_string(address) + " lies behind the block's " +
         std::to_string(shared_bytes_) + " bytes");
  }
  return shared_ + address;
}

/// Switches to the next thread, of the same warp if `in_this_warp` and one is ready. Returns when this
/// thread's turn comes again.
void Block::go_on(bool in_this_warp) {
  Thread& left = thread();
  if (!in_this_warp || warp().ready == 0) warp_ = next_warp();
  lane_ = next_lane(warp().ready);
  if (&left == &thread()) return;
  threadIdx = thread().index;
  left.fiber->switch_to(*thread().fiber);
}

int Block::next_warp() {
  const auto can = [](const Warp& warp) { return warp.ready != 0; };
  const auto count = std::count_if(warps_.begin(), warps_.end(), can);
  if (count == 0) fail("threads of a block wait for each other for ever:" + who_waits());
  auto skipped = order_ == WarpOrder::forward    ? 0
                 : order_ == WarpOrder::backward ? count - 1
                                                 : static_cast<std::ptrdiff_t>(random_()) % count;
  std::size_t number = 0;
  while (!can(warps_[number]) || skipped-- > 0) ++number;
  return static_cast<int>(number);
}

int Block::next_lane(std::uint32_t ready) {
  return order_ == WarpOrder::backward ? kLanes - 1 - std::countl_zero(ready) : std::countr_zero(ready);
}

std::string Block::who_waits() const {
  std::string text;
  for (std::size_t i = 0; i < barriers_.size(); ++i) {
    if (barriers_[i].come == 0) continue;
    text += " " + std::to_string(barriers_[i].come) + " threads at barrier " + std::to_string(i) + ";";
  }
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    if (warps_[i].come == 0) continue;
    text += " " + std::to_string(std::popcount(warps_[i].come)) + " lanes of warp " + std::to_string(i) + ";";
  }
  return text + " " + std::to_string(alive_) + " have not ended";
}

}  // namespace dflop::emulation
