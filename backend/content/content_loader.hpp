// A ContentLoader reads and decodes the samples of coming batches on its own threads, ahead of the steps that
// use them.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/units.hpp"
#include "traces/dataset/dataset.hpp"

namespace dflop {

/// A ContentRequest asks for a sample, with or without the encoder's input values.
struct ContentRequest {
  std::string id;
  bool values = true;
};

class ContentLoader final : public Contents {
 public:
  /// Loads the samples of a data set. The encoder's input values are converted to the run's precision once,
  /// right after they are read.
  ContentLoader(std::shared_ptr<const Dataset> data, int threads, DType dtype = DType::f32);
  ~ContentLoader() override;
  ContentLoader(const ContentLoader&) = delete;
  ContentLoader& operator=(const ContentLoader&) = delete;

  /// Starts loading those samples of a batch that are not loaded yet. Keeps the samples that this call and
  /// the previous call of begin() request, and drops all others.
  void begin(const std::vector<ContentRequest>& batch);

  /// Drops all contents, so that an idle loader holds no memory. Samples that are still loading stay until a
  /// later begin().
  void drop_all();

  /// Waits until all samples of `batch`, which was passed to begin(), are loaded. Returns the waiting time.
  /// @throws the exception of a sample that failed to load
  Seconds wait(const std::vector<ContentRequest>& batch);

  /// encoder() and tokens() return loaded content. @throws Error (internal) for a sample that is not loaded
  std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                 bool values) const override;
  std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const override;
  /// Returns the sample's number of trained tokens. Works for all samples of the data set, loaded or not.
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  /// A Progress is the loading state of one sample.
  struct Progress {
    bool values = false;  ///< the encoder's input values are requested
    bool is_done = false;
    std::exception_ptr failure;
  };

  void work(const std::stop_token& stop);

  std::shared_ptr<const Dataset> data_;
  DType dtype_;
  StoredContents contents_;
  std::mutex mutex_;
  std::condition_variable_any queued_;
  std::condition_variable_any done_;
  std::deque<ContentRequest> queue_;
  std::map<std::string, Progress> progress_;
  std::vector<std::string> latest_;  ///< sample ids of the last begin()
  std::vector<std::jthread> threads_;
};

}  // namespace dflop
