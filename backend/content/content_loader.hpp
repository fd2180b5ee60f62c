// A ContentLoader makes the contents of batches ahead of their steps, on threads of its own.
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

#include "backend/content/dataset.hpp"
#include "core/units.hpp"

namespace dflop {

/// A ContentRequest asks for a sample, with or without what the encoder sees.
struct ContentRequest {
  std::string id;
  bool values = true;
};

class ContentLoader final : public Contents {
 public:
  /// Reads the samples of a data set. What the encoder sees is converted to the precision of the run as soon
  /// as it is read, once.
  ContentLoader(std::shared_ptr<const Dataset> data, int threads, DType dtype = DType::f32);
  ~ContentLoader() override;
  ContentLoader(const ContentLoader&) = delete;
  ContentLoader& operator=(const ContentLoader&) = delete;

  /// Begins to make what of a batch is not there yet. That stays which was asked for by the latest two calls.
  void begin(const std::vector<ContentRequest>& batch);

  /// Drops all contents, so that a loader that is not used for a while holds no memory. What is being made
  /// stays until a later begin().
  void drop_all();

  /// Waits until all of a batch that was begun is there, and returns for how long.
  /// @throws what making one of them has thrown
  Seconds wait(const std::vector<ContentRequest>& batch);

  /// These give what is there. @throws Error (internal) for a sample that is not
  std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                 bool values) const override;
  std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const override;
  /// Returns it for all samples of the data set.
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  /// A Progress is how far the content of one sample has come.
  struct Progress {
    bool values = false;  ///< are asked for
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
  std::vector<std::string> latest_;  ///< ids of the batch that was begun last
  std::vector<std::jthread> threads_;
};

}  // namespace dflop
