// Operations that select rows by index: embedding, gathers, scatters and cross entropy.
#include "tests/cuda/on_both.hpp"

namespace dflop::testing {
namespace kernels_lookup_test {

class CudaLookup : public CudaKernelTest {};

/// Lists of indices in [0, bound): random with repetitions, strictly increasing, and all the same.
std::vector<Ints> index_lists(Random& random, int count, int bound) {
  Ints rising(static_cast<std::size_t>(std::min(count, bound)));
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::int32_t>(i);
  return {random_ints(random, count, bound), rising, Ints(static_cast<std::size_t>(count), bound - 1), {}};
}

TEST_P(CudaLookup, EmbeddingOfAPartOfTheVocabulary) {
  for (const std::size_t s : {0, 1}) {
    shift = s;
    for (const int columns : {1, 24, 129, 2568}) {
      for (const int first : {0, 20}) {
        for (const Ints& list : index_lists(random, 300, 60)) {  // some ids are of other ranks
          const auto n = std::ssize(list);
          const IntsOnBoth ids(list);
          Both &table = values("table", 40, columns), &y = values("y", n, columns);
          Both &dy = values("dy", n, columns), &dtable = sums("dtable", 40, columns);
          expect_alike(std::to_string(n) + " ids of width " + std::to_string(columns),
                       [&](Kernels& k, Side at) {
                         k.embedding(at(y), at(table), at(ids), first);
                         k.embedding_backward(at(dtable), at(dy), at(ids), first);
                       });
        }
      }
    }
  }
}

/// More ids than a block compares at once. Most repeat, some far apart.
TEST_P(CudaLookup, EmbeddingOfManyTokens) {
  const int n = 2'600;
  const IntsOnBoth ids(random_ints(random, n, 900));
  Both &dy = values("dy", n, 8), &dtable = sums("dtable", 900, 8);
  expect_alike(std::to_string(n) + " ids",
               [&](Kernels& k, Side at) { k.embedding_backward(at(dtable), at(dy), at(ids), 0); });
}

TEST_P(CudaLookup, GatherAndScatter) {
  for (const std::size_t s : {0, 1}) {
    shift = s;
    for (const int columns : {1, 24, 129, 2568}) {
      for (const Ints& list : index_lists(random, 40, 50)) {
        const auto n = std::ssize(list);
        const IntsOnBoth index(list);
        Both &x = values("x", 50, columns), &y = values("y", n, columns);
        Both &part = values("part", n, columns), &whole = values("whole", 50, columns);
        expect_alike(std::to_string(n) + " rows of width " + std::to_string(columns),
                     [&](Kernels& k, Side at) {
                       k.gather_rows(at(y), at(x), at(index));
                       k.scatter_add_rows(at(whole), at(part), at(index));
                     });
      }
    }
  }
}

TEST_P(CudaLookup, CrossEntropyOfOneRankAndOfTwo) {
  for (const std::size_t s : {0, 1}) {
    shift = s;
    for (const int classes : {1, 13, 64, 5000}) {
      for (const int n : {0, 1, 6}) {
        Ints targets = random_ints(random, n, 2 * classes);
        if (n > 2) targets[2] = -1;  // no target
        const IntsOnBoth target(targets);
        const double size = n == 1 ? 1.0 : 8.0;  // one row with large logits: its gradient is only rounding
        Both &left = values("left", n, classes, size), &right = values("right", n, classes, size);
        Both &parts = sums("parts", 2 * n, 3), &merged = sums("merged", n, 3), &loss = sums("loss", 1, 1);
        Both& loss_of_right = sums("loss of the right", 1, 1);
        std::ptrdiff_t element = 4;  // bytes per sum on this side
        const auto half = [&](Place all, int rank) {
          return Sums{n > 0 ? static_cast<char*>(all.data) + rank * n * 3 * element : nullptr, n, 3};
        };
        expect_alike(shape_text(n, classes) + " classes on each of two", [&](Kernels& k, Side at) {
          element = at.gpu ? 4 : 8;
          k.cross_entropy_parts(half(at(parts), 0), at(left), at(target), 0);
          k.cross_entropy_parts(half(at(parts), 1), at(right), at(target), classes);
          k.cross_entropy_merge(at(merged), at(parts), 2);
          k.cross_entropy_backward(at(left), at(loss), at(merged), at(target), 0, 0.25);
          k.cross_entropy_backward(at(right), at(loss_of_right), at(merged), at(target), classes, 0.25);
        });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaLookup, ::testing::Values(DType::f32, DType::bf16), dtype_name);

}  // namespace kernels_lookup_test
}  // namespace dflop::testing
