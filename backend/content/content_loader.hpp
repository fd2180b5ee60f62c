// A ContentLoader makes the contents of batches ahead of their steps, on threads of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/content/sample_content.hpp"
#include "core/units.hpp"

namespace dflop {

class ContentLoader final : public Contents {
 public:
  /// Makes contents by `make`, which several threads call at once.
  ContentLoader(std::function<SampleContent(const std::string& id)> make, int threads);
  ~ContentLoader() override;
  ContentLoader(const ContentLoader&) = delete;
  ContentLoader& operator=(const ContentLoader&) = delete;

  /// Begins to make the contents of a batch, of those samples that are not there yet. Those stay that the
  /// latest two batches have.
  void begin(const std::vector<Sample>& batch);

  /// Waits until all contents of a batch that was begun are there, and returns for how long.
  /// @throws what making one of them has thrown
  Seconds wait(const std::vector<Sample>& batch);

  /// These give what is there. @throws Error (internal) for a sample that is not
  EncoderSequence encoder(const Sample& sample, std::int64_t sequence, bool values) const override;
  TokenSequence tokens(const Sample& sample) const override;
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  /// A Progress is how far the content of one sample has come.
  struct Progress {
    bool is_done = false;
    std::exception_ptr failure;
  };

  void work(const std::stop_token& stop);

  std::function<SampleContent(const std::string& id)> make_;
  StoredContents contents_;
  std::mutex mutex_;
  std::condition_variable_any queued_;
  std::condition_variable_any done_;
  std::deque<std::string> queue_;
  std::map<std::string, Progress> progress_;
  std::vector<std::string> latest_;  ///< ids of the batch that was begun last
  std::vector<std::jthread> threads_;
};

}  // namespace dflop
