// A ContentAhead loads the contents of the next batch in advance, as far as this process's ranks need them.
#pragma once

#include <vector>

#include "backend/content/content_loader.hpp"
#include "backend/content/sample_needs.hpp"
#include "backend/world.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/sample.hpp"

namespace dflop {

class ContentAhead {
 public:
  /// `loader` must outlive it.
  ContentAhead(ContentLoader& loader, const Plan& plan, const ModelSpec& model, const World& world)
      : loader_(loader), needs_(plan, model, world.local_ranks()) {}

  /// Begins to load those contents of a scheduled batch that this process's ranks need.
  void begin(const std::vector<Sample>& batch, const Assignment& assignment) {
    requests_.clear();
    const std::vector<SampleNeed> needs = needs_.of(batch, assignment);
    for (std::size_t i = 0; i < needs.size(); ++i) {
      if (needs[i] != SampleNeed::none) requests_.push_back({batch[i].id, needs[i] == SampleNeed::values});
    }
    loader_.begin(requests_);
  }
  /// Begins to load all contents of a batch.
  void begin_all(const std::vector<Sample>& batch) {
    requests_.clear();
    for (const Sample& sample : batch) requests_.push_back({sample.id, true});
    loader_.begin(requests_);
  }
  /// Waits until the contents are loaded, and returns the waiting time. @throws what ContentLoader::wait()
  /// throws
  Seconds wait() { return loader_.wait(requests_); }

 private:
  ContentLoader& loader_;
  SampleNeeds needs_;
  std::vector<ContentRequest> requests_;  // for the latest batch
};

}  // namespace dflop
