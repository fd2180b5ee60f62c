#include "backend/content/content_loader.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace dflop {

ContentLoader::ContentLoader(std::function<SampleContent(const std::string& id)> make, int threads)
    : make_(std::move(make)) {
  for (int t = 0; t < threads; ++t) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

ContentLoader::~ContentLoader() {
  for (std::jthread& thread : threads_) thread.request_stop();
  queued_.notify_all();
}

void ContentLoader::begin(const std::vector<Sample>& batch) {
  std::vector<std::string> ids;
  for (const Sample& sample : batch) ids.push_back(sample.id);
  const std::scoped_lock lock(mutex_);
  std::set<std::string> kept(ids.begin(), ids.end());
  kept.insert(latest_.begin(), latest_.end());
  for (auto entry = progress_.begin(); entry != progress_.end();) {
    // What is being made is dropped by a later call.
    if (!entry->second.is_done || kept.contains(entry->first)) {
      ++entry;
      continue;
    }
    contents_.drop(entry->first);
    entry = progress_.erase(entry);
  }
  for (const std::string& id : ids) {
    if (progress_.try_emplace(id).second) queue_.push_back(id);
  }
  latest_ = std::move(ids);
  queued_.notify_all();
}

Seconds ContentLoader::wait(const std::vector<Sample>& batch) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  for (const Sample& sample : batch) {
    const auto progress = progress_.find(sample.id);
    if (progress == progress_.end()) {
      throw Error(ErrorKind::internal, "sample '" + sample.id + "' is waited for, and was not begun");
    }
    done_.wait(lock, [&] { return progress->second.is_done; });
    if (progress->second.failure) std::rethrow_exception(progress->second.failure);
  }
  return std::chrono::steady_clock::now() - begin;
}

void ContentLoader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (queued_.wait(lock, stop, [this] { return !queue_.empty(); })) {
    const std::string id = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      contents_.keep(id, make_(id));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    progress_[id] = {true, failure};
    done_.notify_all();
    if (stop.stop_requested()) return;
  }
}

EncoderSequence ContentLoader::encoder(const Sample& sample, std::int64_t sequence, bool values) const {
  return contents_.encoder(sample, sequence, values);
}

TokenSequence ContentLoader::tokens(const Sample& sample) const {
  return contents_.tokens(sample);
}

std::int64_t ContentLoader::trained_tokens(const Sample& sample) const {
  return contents_.trained_tokens(sample);
}

}  // namespace dflop
