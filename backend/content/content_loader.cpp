#include "backend/content/content_loader.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "core/error.hpp"

namespace dflop {

ContentLoader::ContentLoader(std::shared_ptr<const Dataset> data, int threads, DType dtype)
    : data_(std::move(data)), dtype_(dtype) {
  for (int t = 0; t < threads; ++t) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

ContentLoader::~ContentLoader() {
  for (std::jthread& thread : threads_) thread.request_stop();
  queued_.notify_all();
}

void ContentLoader::begin(const std::vector<ContentRequest>& batch) {
  std::vector<std::string> ids;
  for (const ContentRequest& request : batch) ids.push_back(request.id);
  const std::scoped_lock lock(mutex_);
  std::set<std::string> kept(ids.begin(), ids.end());
  kept.insert(latest_.begin(), latest_.end());
  for (auto entry = progress_.begin(); entry != progress_.end();) {
    // Samples that are still loading are dropped by a later call.
    if (!entry->second.is_done || kept.contains(entry->first)) {
      ++entry;
      continue;
    }
    contents_.drop(entry->first);
    entry = progress_.erase(entry);
  }
  for (const ContentRequest& request : batch) {
    const auto [known, is_new] = progress_.try_emplace(request.id, Progress{request.values, false, nullptr});
    if (!is_new && (known->second.values || !request.values)) continue;
    known->second = {request.values, false, nullptr};
    queue_.push_back(request);
  }
  latest_ = std::move(ids);
  queued_.notify_all();
}

void ContentLoader::drop_all() {
  begin({});
  begin({});  // because the previous batch is kept too
}

Seconds ContentLoader::wait(const std::vector<ContentRequest>& batch) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  for (const ContentRequest& request : batch) {
    const auto progress = progress_.find(request.id);
    if (progress == progress_.end()) {
      throw Error(ErrorKind::internal,
                  "sample '" + request.id + "' is awaited, but its loading was never started");
    }
    done_.wait(lock, [&] { return progress->second.is_done; });
    if (progress->second.failure) std::rethrow_exception(progress->second.failure);
  }
  return std::chrono::steady_clock::now() - begin;
}

void ContentLoader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (queued_.wait(lock, stop, [this] { return !queue_.empty(); })) {
    const ContentRequest request = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    SampleContent content;
    try {
      content = in_precision(data_->read(request.id, request.values), dtype_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    Progress& progress = progress_[request.id];
    // If its values were requested meanwhile, another queue entry loads them.
    if (progress.values == request.values) {
      if (!failure) contents_.keep(request.id, std::move(content));
      progress.is_done = true;
      progress.failure = failure;
      done_.notify_all();
    }
    if (stop.stop_requested()) return;
  }
}

std::shared_ptr<const EncoderSequence> ContentLoader::encoder(const Sample& sample, std::int64_t sequence,
                                                              bool values) const {
  return contents_.encoder(sample, sequence, values);
}

std::shared_ptr<const TokenSequence> ContentLoader::tokens(const Sample& sample) const {
  return contents_.tokens(sample);
}

std::int64_t ContentLoader::trained_tokens(const Sample& sample) const {
  return data_->trained_tokens(sample);
}

}  // namespace dflop
