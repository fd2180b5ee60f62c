// Operations on values and rows: activations, norms, rope, rows, AdamW.
#include "tests/cuda/on_both.hpp"
#include "tests/kernels/stored.hpp"

namespace dflop::testing {
namespace kernels_rows_test {

class CudaRows : public CudaKernelTest {
 protected:
  /// Calls f(rows, columns) for all shapes, aligned and not.
  template <typename F>
  void for_shapes(F f) {
    for (const std::size_t s : {0, 1}) {
      shift = s;
      for (const auto& [rows, columns] : kShapes) f(rows, columns);
    }
  }
};

TEST_P(CudaRows, Activations) {
  for_shapes([&](int n, int columns) {
    for (const double size : {1.0, 12.0}) {
      if (size > 1.0 && n == 1) continue;  // far from 0, a single value is only rounding of the exponent
      Both &x = values("x", n, columns, size), &dy = values("dy", n, columns);
      Both &y = values("y", n, columns), &dx = values("dx", n, columns);
      expect_alike("gelu " + shape_text(n, columns), [&](Kernels& k, Side at) {
        k.gelu(at(y), at(x));
        k.gelu_backward(at(dx), at(dy), at(x));
      });
      Both &of_erf = values("x", n, columns, size), &slope_erf = values("dy", n, columns);
      Both &erf = values("erf", n, columns), &derf = values("derf", n, columns);
      expect_alike("gelu_erf " + shape_text(n, columns), [&](Kernels& k, Side at) {
        k.gelu_erf(at(erf), at(of_erf));
        k.gelu_erf_backward(at(derf), at(slope_erf), at(of_erf));
      });
      Both &of_quick = values("x", n, columns, size), &slope_quick = values("dy", n, columns);
      Both &quick = values("quick", n, columns), &dquick = values("dquick", n, columns);
      expect_alike("gelu_quick " + shape_text(n, columns), [&](Kernels& k, Side at) {
        k.gelu_quick(at(quick), at(of_quick));
        k.gelu_quick_backward(at(dquick), at(slope_quick), at(of_quick));
      });
      Both &pair = values("pair", n, 2 * columns, size), &slope = values("slope", n, columns);
      Both &open = values("open", n, columns), &dpair = values("dpair", n, 2 * columns);
      expect_alike("swiglu " + shape_text(n, columns), [&](Kernels& k, Side at) {
        k.swiglu(at(open), at(pair));
        k.swiglu_backward(at(dpair), at(slope), at(pair));
      });
    }
  });
}

TEST_P(CudaRows, LayerNorm) {
  for_shapes([&](int n, int columns) {
    if (columns == 1) return;  // the variance of one value is only rounding
    Both &x = values("x", n, columns), &gamma = values("gamma", 1, columns),
         &beta = values("beta", 1, columns);
    Both &y = values("y", n, columns), &kept_rows = sums("statistics", n, 2);
    Both &dy = values("dy", n, columns), &dx = values("dx", n, columns);
    Both &dgamma = sums("dgamma", 1, columns), &dbeta = sums("dbeta", 1, columns);
    Both &alone = values("dx alone", n, columns), &gamma_alone = sums("dgamma alone", 1, columns);
    Both &sum = values("sum", n, columns), &added = values("added", n, columns);
    Both &of_sum = values("y of the sum", n, columns), &more = values("dx and more", n, columns);
    expect_alike("layer_norm " + shape_text(n, columns), [&](Kernels& k, Side at) {
      k.layer_norm(at(y), at(kept_rows), at(x), {}, at(gamma), at(beta), 1e-5);
      k.layer_norm_backward(at(dx), at(dgamma), at(dbeta), at(dy), at(x), at(gamma), at(kept_rows), {});
      k.layer_norm_backward(at(alone), {}, {}, at(dy), at(x), at(gamma), at(kept_rows), {});
      k.layer_norm_backward({}, at(gamma_alone), {}, at(dy), at(x), at(gamma), at(kept_rows), at(added));
      k.layer_norm(at(of_sum), at(kept_rows), at(sum), at(added), at(gamma), at(beta), 1e-5);
      k.layer_norm_backward(at(more), at(dgamma), at(dbeta), at(dy), at(sum), at(gamma), at(kept_rows),
                            at(added));
    });
  });
}

TEST_P(CudaRows, RmsNorm) {
  for_shapes([&](int n, int columns) {
    if (columns == 1) return;  // dx of one value is 0 except for rounding
    Both &x = values("x", n, columns), &gamma = values("gamma", 1, columns);
    Both &y = values("y", n, columns), &kept_rows = sums("statistics", n, 1);
    Both &dy = values("dy", n, columns), &dx = values("dx", n, columns);
    Both &dgamma = sums("dgamma", 1, columns), &gamma_alone = sums("dgamma alone", 1, columns);
    Both &sum = values("sum", n, columns), &added = values("added", n, columns);
    Both &of_sum = values("y of the sum", n, columns), &more = values("dx and more", n, columns);
    expect_alike("rms_norm " + shape_text(n, columns), [&](Kernels& k, Side at) {
      k.rms_norm(at(y), at(kept_rows), at(x), {}, at(gamma), 1e-5);
      k.rms_norm_backward(at(dx), at(dgamma), at(dy), at(x), at(gamma), at(kept_rows), {});
      k.rms_norm_backward({}, at(gamma_alone), at(dy), at(x), at(gamma), at(kept_rows), at(added));
      k.rms_norm(at(of_sum), at(kept_rows), at(sum), at(added), at(gamma), 1e-5);
      k.rms_norm_backward(at(more), at(dgamma), at(dy), at(sum), at(gamma), at(kept_rows), at(added));
    });
  });
}

/// More columns than one pass sums in either precision.
TEST_P(CudaRows, NormsOfWideRows) {
  const int n = 3;
  const int columns = 17'408;
  Both &x = values("x", n, columns), &gamma = values("gamma", 1, columns), &dy = values("dy", n, columns);
  Both &y = values("y", n, columns), &dx = values("dx", n, columns);
  Both &kept_rows = sums("statistics", n, 2), &kept_roots = sums("roots", n, 1);
  Both &dgamma = sums("dgamma", 1, columns), &dbeta = sums("dbeta", 1, columns);
  Both &root_dgamma = sums("dgamma of rms_norm", 1, columns), &added = values("added", n, columns);
  expect_alike("norms " + shape_text(n, columns), [&](Kernels& k, Side at) {
    k.layer_norm(at(y), at(kept_rows), at(x), at(added), at(gamma), at(gamma), 1e-5);
    k.layer_norm_backward(at(dx), at(dgamma), at(dbeta), at(dy), at(x), at(gamma), at(kept_rows), at(added));
    k.rms_norm(at(y), at(kept_roots), at(x), at(added), at(gamma), 1e-5);
    k.rms_norm_backward(at(dx), at(root_dgamma), at(dy), at(x), at(gamma), at(kept_roots), at(added));
  });
}

/// Norms that add give the same bits as `add` before the norm. In f32, their backwards give the same bits as
/// `add` after the backward; in bf16 the gradient is rounded only once.
TEST_P(CudaRows, NormsAddBitIdenticallyToAdd) {
  for_shapes([&](int n, int columns) {
    Both &x = values("x", n, columns), &added = values("added", n, columns);
    Both &gamma = values("gamma", 1, columns), &dy = values("dy", n, columns);
    Both &y = values("y", n, columns), &dx = values("dx", n, columns), &dgamma = sums("dgamma", 1, columns);
    Both &kept_rows = sums("statistics", n, 2), &kept_roots = sums("roots", n, 1);
    const Side at{true};
    const auto outputs = [&](bool centered, bool fused) {
      for (const auto& both : kept) both->reset();
      const ConstMatrix first = fused ? ConstMatrix(at(added)) : ConstMatrix();
      if (!fused) gpu->add(at(x), at(added));
      if (centered) {
        gpu->layer_norm(at(y), at(kept_rows), at(x), first, at(gamma), at(gamma), 1e-5);
        gpu->layer_norm_backward(at(dx), at(dgamma), {}, at(dy), at(x), at(gamma), at(kept_rows), first);
      } else {
        gpu->rms_norm(at(y), at(kept_roots), at(x), first, at(gamma), 1e-5);
        gpu->rms_norm_backward(at(dx), at(dgamma), at(dy), at(x), at(gamma), at(kept_roots), first);
      }
      if (!fused) gpu->add(at(dx), at(added));
      check_cuda(cudaStreamSynchronize(stream), "wait for norms");
      std::vector<std::vector<char>> all;
      for (const auto& both : kept) {
        if (GetParam() == DType::f32 || both.get() != &dx) all.push_back(both->read());
      }
      return all;
    };
    for (const bool centered : {true, false}) {
      EXPECT_TRUE(outputs(centered, true) == outputs(centered, false))
          << (centered ? "layer_norm " : "rms_norm ") << shape_text(n, columns);
    }
    kept.clear();
  });
}

TEST_P(CudaRows, Rope) {
  for (const std::size_t s : {0, 1}) {
    shift = s;
    for (const auto& shape : {AttentionShape{3, 1, 2, false}, AttentionShape{4, 2, 64, true},
                              AttentionShape{2, 2, 80, false}, AttentionShape{5, 5, 128, false}}) {
      for (const int n : {0, 1, 7, 18}) {
        const IntsOnBoth rows(random_ints(random, n, 50));
        Both& turns = sums("turns", 50, shape.head_dim);
        Both &there = values("turned", n, shape.qkv_columns()),
             &back = values("inverse", n, shape.qkv_columns());
        expect_alike("rope " + std::to_string(n) + " rows, head_dim " + std::to_string(shape.head_dim),
                     [&](Kernels& k, Side at) {
                       k.rope(at(there), shape, at(rows), at(turns), false);
                       k.rope(at(back), shape, at(rows), at(turns), true);
                     });
      }
    }
  }
}

TEST_P(CudaRows, AddRoundAndZero) {
  for_shapes([&](int n, int columns) {
    Both &y = values("y", n, columns), &x = values("x", n, columns), &rounded = values("rounded", n, columns);
    Both &s = sums("sums", n, columns), &none = values("zero", n, columns),
         &no_sums = sums("zero", n, columns);
    expect_alike("rows " + shape_text(n, columns), [&](Kernels& k, Side at) {
      k.add(at(y), at(x));
      k.round(at(rounded), at(s));
      k.zero(Matrix(at(none)));
      k.zero(Sums(at(no_sums)));
    });
  });
}

/// Returns the bytes of some numbers of the host.
template <typename T>
std::vector<char> bytes_of_all(const std::vector<T>& numbers) {
  const auto* begin = reinterpret_cast<const char*>(numbers.data());
  return {begin, begin + numbers.size() * sizeof(T)};
}

/// Gives the same bits as the host, with whole vectors and without, aligned or not. In some runs, a number is
/// not finite.
TEST_P(CudaRows, UnpackEqualsTheHostsBits) {
  const std::unique_ptr<Kernels> of_host = make_host_kernels(GetParam());
  const std::size_t width = bytes_of(GetParam());
  for (const NumberType type : kNumberTypes) {
    for (const std::size_t count : {1U, 64U, 1001U, 4096U}) {
      for (const std::size_t s : {0U, 1U}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(type)) + ", " + std::to_string(count) +
                     " numbers, shift " + std::to_string(s));
        Stored stored = random_stored(random, type, count);
        for (const bool is_finite : {true, false}) {
          if (!is_finite) stored.set(count - 1, Special::infinity);
          const auto n = static_cast<std::int64_t>(count);
          std::vector<char> values(count * width);
          std::vector<float> sums(count);
          std::vector<float> flag(1);
          of_host->unpack_values(Matrix{values.data(), 1, n}, Sums{flag.data(), 1, 1}, stored.numbers());
          of_host->unpack_sums(Sums{sums.data(), 1, n}, stored.numbers());
          EXPECT_EQ(flag[0] > 0, !is_finite);

          GuardedMemory from(stored.bytes.size(), s * bytes_of(type)), to(count * width, s * width),
              to_sums(4 * count, 4 * s), found(4, 0);
          from.write(bytes_of_all(stored.bytes));
          to.write(std::vector<char>(count * width, 1));
          to_sums.write(std::vector<char>(4 * count, 1));
          found.write({0, 0, 0, 0});
          const StoredNumbers numbers{type, from.data(), n};
          gpu->unpack_values(Matrix{to.data(), 1, n}, Sums{found.data(), 1, 1}, numbers);
          gpu->unpack_sums(Sums{to_sums.data(), 1, n}, numbers);
          check_cuda(cudaStreamSynchronize(stream), "wait for numbers");
          EXPECT_TRUE(to.read() == values);
          EXPECT_TRUE(to_sums.read() == bytes_of_all(sums));
          EXPECT_TRUE(found.read() == bytes_of_all(flag));
        }
      }
    }
  }
}

TEST_P(CudaRows, AdamW) {
  for_shapes([&](int n, int columns) {
    Both &weight = values("weight", n, columns), &master = sums("master", n, columns);
    Both &m = sums("m", n, columns), &gradient = sums("gradient", n, columns);
    Reals squares = random_values(random, n, columns);
    for (double& x : squares.data) x = x * x;
    Both& v = keep("v", squares, DType::f32);
    const AdamWStep step{1e-2, 0.9, 0.95, 1e-8, 0.1, 3, -0.37};
    expect_alike("adamw " + shape_text(n, columns), [&](Kernels& k, Side at) {
      k.adamw(at(weight), at(master), at(m), at(v), at(gradient), step);
    });
  });
}

TEST_P(CudaRows, Mixes) {
  // Windows in order; overlapping, empty and with gaps; not in order; none.
  const std::vector<std::pair<Ints, Ints>> windows = {
      {{0, 2, 5, 9}, {2, 5, 9, 12}}, {{1, 4, 4}, {3, 4, 8}}, {{5, 0, 2, 2}, {9, 10, 3, 7}}, {{}, {}}};
  for_shapes([&](int, int columns) {
    for (const auto& [begin, end] : windows) {
      const auto n = std::ssize(begin);
      const IntsOnBoth from(begin), to(end), index(random_ints(random, 12, 10));
      Both &x = values("x", 10, columns), &y = values("y", n, columns), &weights = sums("weights", 1, 12);
      expect_alike(
          std::to_string(n) + " mixes of " + std::to_string(columns) + " columns",
          [&](Kernels& k, Side at) { k.mix_rows(at(y), at(x), at(from), at(to), at(index), at(weights)); });
    }
  });
}

TEST_P(CudaRows, MixesAtRandom) {
  for_shapes([&](int n, int columns) {
    Ints begin, end;
    for (int row = 0; row < n; ++row) {  // a third of the windows are empty, some overlap
      begin.push_back(static_cast<std::int32_t>(random.below(41)));
      end.push_back(static_cast<std::int32_t>(begin.back() + random.below(3) * random.below(5)));
    }
    const IntsOnBoth from(begin), to(end), index(random_ints(random, 48, 9));
    Both &x = values("x", 9, columns), &y = values("y", n, columns), &weights = sums("weights", 1, 48);
    expect_alike("mixes " + shape_text(n, columns), [&](Kernels& k, Side at) {
      k.mix_rows(at(y), at(x), at(from), at(to), at(index), at(weights));
    });
  });
}

TEST_P(CudaRows, Columns) {
  for_shapes([&](int n, int columns) {
    Both &x = values("x", n, columns), &scale = values("scale", 1, columns), &y = values("y", n, columns);
    Both &other = values("other", n, columns), &products = sums("products", 1, columns);
    expect_alike("columns " + shape_text(n, columns), [&](Kernels& k, Side at) {
      k.scale_columns(at(y), at(x), at(scale));
      k.column_products(at(products), at(x), at(other));
    });
  });
}

/// No values, one, fewer than the threads of a block, many blocks, and more than all blocks sum in one round.
TEST_P(CudaRows, Squares) {
  for (const std::size_t s : {0, 1}) {
    shift = s;
    for (const int size : {0, 1, 255, 100'003, 1'100'003}) {
      Both &x = sums("x", 1, size), &squares = sums("squares", 1, 1);
      expect_alike(std::to_string(size) + " squares",
                   [&](Kernels& k, Side at) { k.sum_of_squares(at(squares), at(x)); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaRows, ::testing::Values(DType::f32, DType::bf16), dtype_name);

}  // namespace kernels_rows_test
}  // namespace dflop::testing
