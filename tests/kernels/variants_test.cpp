// Every variant of every operation gives the same results as the portable f64 functions on the same numbers,
// on every target of this processor and in every precision, for random shapes and again with other memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/host/host_kernels.hpp"
#include "tests/kernels/values.hpp"
#include "tests/rounds.hpp"

namespace dflop::testing {
namespace variants_test {

/// The outputs of a call, as bytes and as numbers.
struct Output {
  std::vector<std::byte> bytes;
  std::vector<double> numbers;
};

/// Makes the arguments of one call. All precisions get the same numbers, exact in bf16. Each matrix starts
/// `shift` times 64 bytes after a page boundary.
class Arguments {
 public:
  Arguments(DType dtype, std::uint64_t seed, std::size_t shift = 0)
      : random(seed), dtype_(dtype), shift_(64 * shift) {}

  ConstMatrix in(std::int64_t rows, std::int64_t columns, double size = 1.0) {
    return {filled(dtype_, rows * columns, size), rows, columns};
  }
  Matrix out(std::int64_t rows, std::int64_t columns) {
    return {written(dtype_, rows * columns, 0.0), rows, columns};
  }
  Matrix in_out(std::int64_t rows, std::int64_t columns, double size = 1.0) {
    return {written(dtype_, rows * columns, size), rows, columns};
  }
  ConstSums sums_in(std::int64_t rows, std::int64_t columns, double size = 1.0) {
    return {filled(sum_type_of(dtype_), rows * columns, size), rows, columns};
  }
  Sums sums_out(std::int64_t rows, std::int64_t columns, double size = 0.0) {
    return {written(sum_type_of(dtype_), rows * columns, size), rows, columns};
  }
  StoredNumbers stored(std::int64_t count) {
    return {NumberType::f32, filled(DType::f32, count, 1.0), count};
  }
  Indices indices(Ints numbers) {
    const auto& kept = numbers_.emplace_back(std::make_unique<Ints>(std::move(numbers)));
    return {*kept, kept->data()};
  }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
  }

  std::vector<Output> outputs() const {
    std::vector<Output> all;
    for (const Block& block : blocks_) {
      if (!block.is_output) continue;
      Output& output = all.emplace_back();
      const auto* begin = static_cast<const std::byte*>(block.data);
      output.bytes.assign(begin, begin + block.count * bytes_of(block.dtype));
      for (std::size_t i = 0; i < block.count; ++i) output.numbers.push_back(number(block, i));
    }
    return all;
  }

  Random random;

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kPage); }
  };
  struct Block {
    DType dtype;
    void* data;
    std::size_t count;
    bool is_output;
    std::unique_ptr<std::byte, Free> memory;
  };

  static double number(const Block& block, std::size_t i) {
    if (block.dtype == DType::f64) return static_cast<const double*>(block.data)[i];
    if (block.dtype == DType::f32) return static_cast<const float*>(block.data)[i];
    return to_float(static_cast<const BFloat16*>(block.data)[i]);
  }

  void* filled(DType dtype, std::int64_t size, double scale, bool is_output = false) {
    const auto count = static_cast<std::size_t>(size);
    auto* memory = static_cast<std::byte*>(::operator new(count* bytes_of(dtype) + shift_ + 1, kPage));
    void* data = memory + shift_;
    for (std::size_t i = 0; i < count; ++i) {
      const BFloat16 value = to_bfloat16(static_cast<float>(scale * (2.0 * random.uniform() - 1.0)));
      if (dtype == DType::f64) static_cast<double*>(data)[i] = to_float(value);
      if (dtype == DType::f32) static_cast<float*>(data)[i] = to_float(value);
      if (dtype == DType::bf16) static_cast<BFloat16*>(data)[i] = value;
    }
    blocks_.push_back({dtype, data, count, is_output, std::unique_ptr<std::byte, Free>(memory)});
    return data;
  }
  void* written(DType dtype, std::int64_t size, double scale) { return filled(dtype, size, scale, true); }

  DType dtype_;
  std::size_t shift_;
  std::vector<Block> blocks_;
  std::vector<std::unique_ptr<Ints>> numbers_;
};

/// An operation with its calls. Round 0 has no rows, round 1 one row, others up to 200 rows.
struct Case {
  std::string name;
  std::function<std::size_t(const Kernels&)> variants;
  std::function<std::string(const Kernels&, std::size_t)> variant_name;
  std::function<void(const Kernels&, std::size_t variant, Arguments&, int round)> call;
};

/// `body` makes arguments and passes them to a function that runs the operation with a variant.
template <typename Member, typename Body>
Case make_case(Member operation, Body body) {
  return {std::string((Kernels(DType::f32).*operation).name()),
          [=](const Kernels& k) { return (k.*operation).variants(); },
          [=](const Kernels& k, std::size_t i) { return std::string((k.*operation).variant_name(i)); },
          [=](const Kernels& k, std::size_t variant, Arguments& a, int round) {
            const std::int64_t rows = round < 2 ? round : 2 + a.below(199);
            body(k, a, rows, [&](auto&&... args) { (k.*operation).run_variant(variant, args...); });
          }};
}

/// Sequences that cover all rows, in most rounds with several lengths, in some with one short length. Some
/// are empty.
Ints random_offsets(Arguments& a, std::int64_t rows) {
  Ints offsets = {0};
  const std::int64_t equal = a.below(3) == 0 ? 1 + a.below(20) : 0;
  while (offsets.back() < rows) {
    const std::int64_t length = equal > 0 ? equal : a.below(2) == 0 ? a.below(12) : a.below(rows + 1);
    offsets.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(rows, offsets.back() + length)));
  }
  return offsets;
}

/// The shape of the heads and the offsets of the sequences.
struct Attended {
  AttentionShape shape;
  Ints offsets;

  std::int64_t rows() const { return offsets.back(); }
};

/// Rows in sequences of several lengths, or one sequence with several blocks of keys.
Attended random_attention(Arguments& a, std::int64_t rows) {
  if (rows > 1 && a.below(4) == 0) {
    const auto length = static_cast<std::int32_t>(700 + a.below(400));
    return {{2, 1, 16, a.below(2) == 0}, {0, 5, 5 + length}};
  }
  const int key_heads = 1 + static_cast<int>(a.below(3));
  const int group = 1 + static_cast<int>(a.below(3));
  const int widths[] = {2, 8, 16, 20, 64, 72};
  return {{key_heads * group, key_heads, widths[a.below(6)], a.below(2) == 0}, random_offsets(a, rows)};
}

std::vector<Case> cases() {
  using K = Kernels;
  std::vector<Case> all;
  const auto add = [&](auto operation, auto body) { all.push_back(make_case(operation, body)); };
  const auto width = [](Arguments& a) { return 1 + a.below(90); };
  const auto either = [](Arguments& a, ConstMatrix x) { return a.below(2) == 0 ? x : ConstMatrix(); };
  const auto logit_size = 3.0;

  add(&K::linear, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t in = width(a), out = width(a);
    const ConstMatrix x = a.in(n, in), weight = a.in(out, in), bias = either(a, a.in(1, out));
    call(a.out(n, out), x, weight, bias);
  });
  add(&K::linear_backward_input, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t in = width(a), out = width(a);
    const ConstMatrix dy = a.in(n, out), weight = a.in(out, in);
    call(a.out(n, in), dy, weight);
  });
  add(&K::linear_backward_weight, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t in = width(a), out = width(a);
    const bool biased = a.below(2) == 0;
    const ConstMatrix dy = a.in(n, out), x = a.in(n, in);
    const Beta beta = a.below(2) == 0 ? Beta::zero : Beta::one;
    const Sums dweight = a.sums_out(out, in, 1.0), dbias = a.sums_out(1, out, 1.0);
    call(dweight, biased ? dbias : Sums(), dy, x, beta);
  });
  add(&K::layer_norm, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a) + 1;
    const ConstMatrix gamma = a.in(1, c), beta = a.in(1, c), added = either(a, a.in(n, c));
    const Matrix y = a.out(n, c), x = a.in_out(n, c, 3.0);
    call(y, a.sums_out(n, 2), x, added, gamma, beta, 1e-3);
  });
  add(&K::layer_norm_backward, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix dy = a.in(n, c), x = a.in(n, c), gamma = a.in(1, c), added = either(a, a.in(n, c));
    const Matrix dx = a.out(n, c);
    const Sums dgamma = a.sums_out(1, c, 1.0), dbeta = a.sums_out(1, c, 1.0);
    const auto left_out = a.below(4);
    call(left_out == 1 ? Matrix(nullptr, n, c) : dx, left_out == 2 ? Sums() : dgamma,
         left_out == 3 ? Sums() : dbeta, dy, x, gamma, a.sums_in(n, 2), added);
  });
  add(&K::rms_norm, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix gamma = a.in(1, c), added = either(a, a.in(n, c));
    const Matrix y = a.out(n, c), x = a.in_out(n, c, 3.0);
    call(y, a.sums_out(n, 1), x, added, gamma, 1e-3);
  });
  add(&K::rms_norm_backward, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix dy = a.in(n, c), x = a.in(n, c), gamma = a.in(1, c), added = either(a, a.in(n, c));
    const Matrix dx = a.out(n, c);
    const Sums dgamma = a.sums_out(1, c, 1.0);
    const auto left_out = a.below(3);
    call(left_out == 1 ? Matrix(nullptr, n, c) : dx, left_out == 2 ? Sums() : dgamma, dy, x, gamma,
         a.sums_in(n, 1), added);
  });
  add(&K::gelu, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = 2 * width(a);
    const ConstMatrix x = a.in(n, c, 6.0);
    call(a.out(n, c), x);
  });
  add(&K::gelu_backward, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = 2 * width(a);
    const ConstMatrix dy = a.in(n, c), x = a.in(n, c, 6.0);
    call(a.out(n, c), dy, x);
  });
  add(&K::gelu_erf, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix x = a.in(n, c, 6.0);
    call(a.out(n, c), x);
  });
  add(&K::gelu_erf_backward, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix dy = a.in(n, c), x = a.in(n, c, 6.0);
    call(a.out(n, c), dy, x);
  });
  add(&K::gelu_quick, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix x = a.in(n, c, 6.0);
    call(a.out(n, c), x);
  });
  add(&K::gelu_quick_backward, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix dy = a.in(n, c), x = a.in(n, c, 6.0);
    call(a.out(n, c), dy, x);
  });
  add(&K::swiglu, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix x = a.in(n, 2 * c, 6.0);
    call(a.out(n, c), x);
  });
  add(&K::swiglu_backward, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix dy = a.in(n, c), x = a.in(n, 2 * c, 6.0);
    call(a.out(n, 2 * c), dy, x);
  });
  add(&K::rope, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const AttentionShape shape = random_attention(a, 0).shape;
    const Indices rows = a.indices(random_ints(a.random, n, 50));
    const ConstSums turns = a.sums_in(50, shape.head_dim);
    call(a.in_out(n, shape.qkv_columns()), shape, rows, turns, a.below(2) == 0);
  });
  add(&K::attention, [=](const K&, Arguments& a, std::int64_t rows, auto call) {
    const Attended attended = random_attention(a, rows);
    const AttentionShape shape = attended.shape;
    const Indices offsets = a.indices(attended.offsets);
    const std::int64_t n = attended.rows();
    const ConstMatrix qkv = a.in(n, shape.qkv_columns(), 2.0);
    const Matrix out = a.out(n, shape.out_columns());
    call(out, a.sums_out(n, shape.heads), qkv, shape, offsets);
  });
  add(&K::attention_backward, [=](const K& k, Arguments& a, std::int64_t rows, auto call) {
    const Attended attended = random_attention(a, rows);
    const AttentionShape shape = attended.shape;
    const Indices offsets = a.indices(attended.offsets);
    const std::int64_t n = attended.rows();
    const ConstMatrix qkv = a.in(n, shape.qkv_columns(), 2.0), dout = a.in(n, shape.out_columns());
    const Matrix out = a.out(n, shape.out_columns()), dqkv = a.out(n, shape.qkv_columns());
    const Sums statistics = a.sums_out(n, shape.heads);
    k.attention(out, statistics, qkv, shape, offsets);
    call(dqkv, dout, out, statistics, qkv, shape, offsets);
  });
  add(&K::embedding, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix table = a.in(30, c);
    call(a.out(n, c), table, a.indices(random_ints(a.random, n, 50)), 10);
  });
  add(&K::embedding_backward, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix dy = a.in(n, c);
    call(a.sums_out(30, c, 1.0), dy, a.indices(random_ints(a.random, n, 50)), 10);
  });
  add(&K::mix_rows, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const Ints begin = random_ints(a.random, n, 50);
    Ints end = begin;
    for (auto& last : end) last += static_cast<std::int32_t>(a.below(9));
    const Indices from = a.indices(begin), to = a.indices(end),
                  index = a.indices(random_ints(a.random, 60, 40));
    const ConstMatrix x = a.in(40, c);
    const ConstSums weights = a.sums_in(1, 60);
    call(a.out(n, c), x, from, to, index, weights);
  });
  add(&K::scale_columns, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix x = a.in(n, c), scale = a.in(1, c);
    call(a.out(n, c), x, scale);
  });
  add(&K::column_products, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix x = a.in(n, c), y = a.in(n, c);
    call(a.sums_out(1, c, 1.0), x, y);
  });
  add(&K::sum_of_squares, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const ConstSums x = a.sums_in(n, 200);
    call(a.sums_out(1, 1, 1.0), x);
  });
  add(&K::gather_rows, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix x = a.in(20, c);
    call(a.out(n, c), x, a.indices(random_ints(a.random, n, 20)));
  });
  add(&K::scatter_add_rows, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix x = a.in(n, c);
    call(a.in_out(20, c), x, a.indices(random_ints(a.random, n, 20)));
  });
  add(&K::cross_entropy_parts, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    const ConstMatrix logits = a.in(n, c, logit_size);
    call(a.sums_out(n, 3), logits, a.indices(random_ints(a.random, n, 2 * c)), c / 2);
  });
  add(&K::cross_entropy_merge, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const ConstSums parts = a.sums_in(3 * n, 3, logit_size);
    call(a.sums_out(n, 3), parts, 3);
  });
  add(&K::cross_entropy_backward, [=](const K& k, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = width(a);
    Ints targets = random_ints(a.random, n, c + 1);
    for (auto& target : targets) target -= 1;  // some rows have no target
    const Matrix logits = a.in_out(n, c, logit_size);
    const Sums merged = a.sums_out(n, 3), loss = a.sums_out(1, 1, 1.0);
    k.cross_entropy_parts(merged, logits, a.indices(targets), 0);
    call(logits, loss, merged, a.indices(targets), 0, 0.25);
  });
  add(&K::add, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = 2 * width(a);
    const ConstMatrix x = a.in(n, c);
    call(a.in_out(n, c), x);
  });
  add(&K::zero_values, [=](const K&, Arguments& a, std::int64_t n, auto call) { call(a.in_out(n, 200)); });
  add(&K::zero_sums,
      [=](const K&, Arguments& a, std::int64_t n, auto call) { call(a.sums_out(n, 200, 1.0)); });
  add(&K::round, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const ConstSums x = a.sums_in(n, 200);
    call(a.out(n, 200), x);
  });
  add(&K::unpack_values, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const StoredNumbers x = a.stored(n * 200);
    const Matrix y = a.out(n, 200);
    call(y, a.sums_out(1, 1), x);
  });
  add(&K::unpack_sums, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const StoredNumbers x = a.stored(n * 200);
    call(a.sums_out(n, 200), x);
  });
  add(&K::adamw, [=](const K&, Arguments& a, std::int64_t n, auto call) {
    const std::int64_t c = 2 * width(a);
    const ConstSums gradient = a.sums_in(n, c);
    const Sums master = a.sums_out(n, c, 1.0), m = a.sums_out(n, c, 1.0), v = a.sums_out(n, c);
    call(a.out(n, c), master, m, v, gradient, AdamWStep{1e-3, 0.9, 0.95, 1e-8, 0.1, 3, 1.0 / 3.0});
  });
  return all;
}

/// Max norm of the difference relative to the norm of the result, for a few roundings.
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-5 : 8e-3;
}

void expect_near(const std::vector<Output>& actual, const std::vector<Output>& expected, double most,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].numbers.size(), expected[i].numbers.size()) << what;
    double difference = 0.0, size = 0.0;
    for (std::size_t j = 0; j < expected[i].numbers.size(); ++j) {
      difference += std::pow(actual[i].numbers[j] - expected[i].numbers[j], 2);
      size += std::pow(expected[i].numbers[j], 2);
    }
    ASSERT_LE(std::sqrt(difference), most * (std::sqrt(size) + 1e-3)) << what << ", output " << i;
  }
}

bool have_equal_bytes(const std::vector<Output>& a, const std::vector<Output>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Output& x, const Output& y) { return x.bytes == y.bytes; });
}

std::vector<Output> outputs_of(const Case& one, const Kernels& kernels, std::size_t variant, int round,
                               std::size_t shift = 0) {
  Arguments arguments(kernels.dtype(), 1000 + static_cast<std::uint64_t>(round), shift);
  one.call(kernels, variant, arguments, round);
  return arguments.outputs();
}

constexpr int kRounds = rounds(8);  // at least 3: see make_case()

/// The options that kernels are made with.
struct Made {
  HostTarget target;
  DType dtype;
};

std::vector<Made> all_made() {
  std::vector<Made> all;
  for (const auto& [target, target_name] : kNames<HostTarget>) {
    for (const auto& [dtype, dtype_name] : kNames<DType>) {
      if (has_host_target(target)) all.push_back({target, dtype});
    }
  }
  return all;
}

class Variants : public ::testing::TestWithParam<Made> {
 protected:
  const HostTarget target = GetParam().target;
  const DType dtype = GetParam().dtype;
  const std::unique_ptr<Kernels> reference = make_host_kernels(DType::f64, HostTarget::portable);
  const std::vector<Case> all = cases();
};

TEST_P(Variants, AreNearTheReference) {
  const auto kernels = make_host_kernels(dtype, target);
  for (const Case& one : all) {
    for (int round = 0; round < kRounds; ++round) {
      const auto expected = outputs_of(one, *reference, 0, round);
      for (std::size_t i = 0; i < one.variants(*kernels); ++i) {
        expect_near(outputs_of(one, *kernels, i, round), expected, tolerance(dtype),
                    one.name + " by " + one.variant_name(*kernels, i) + ", round " + std::to_string(round));
      }
    }
  }
}

TEST_P(Variants, RepeatToTheBitOnMemoryAlignedTo64Bytes) {
  const auto kernels = make_host_kernels(dtype, target);
  for (const Case& one : all) {
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < one.variants(*kernels); ++i) {
        const auto expected = outputs_of(one, *kernels, i, round);
        for (const std::size_t shift : {1U, 3U}) {
          EXPECT_TRUE(have_equal_bytes(outputs_of(one, *kernels, i, round, shift), expected))
              << one.name << " by " << one.variant_name(*kernels, i) << ", round " << round;
        }
      }
    }
  }
}

TEST_P(Variants, AreTheSameForeveryTeam) {
  std::vector<std::unique_ptr<Team>> teams;
  std::vector<std::unique_ptr<Kernels>> kernels;
  for (int threads = 1; threads <= 4; threads += kSanitized ? 2 : 1) {
    teams.push_back(std::make_unique<Team>(threads));
    kernels.push_back(make_host_kernels(dtype, target, teams.back().get()));
  }
  const Kernels& first = *kernels.front();
  for (const Case& one : all) {
    for (int round = 0; round < kRounds; ++round) {
      const auto near = outputs_of(one, *reference, 0, round);
      for (std::size_t i = 0; i < one.variants(first); ++i) {
        const std::string what =
            one.name + " by " + one.variant_name(first, i) + ", round " + std::to_string(round);
        const auto expected = outputs_of(one, first, i, round);
        expect_near(expected, near, tolerance(dtype), what);
        for (std::size_t team = 1; team < teams.size(); ++team) {
          EXPECT_TRUE(have_equal_bytes(outputs_of(one, *kernels[team], i, round), expected))
              << what << ", " << teams[team]->threads() << " threads";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, Variants, ::testing::ValuesIn(all_made()), [](const auto& made) {
  return std::string(to_string(made.param.target)) + "_" + std::string(to_string(made.param.dtype));
});

TEST(VariantCases, HaveEveryOperation) {
  std::multiset<std::string> expected, actual;
  const Kernels kernels(DType::f32);
  for_each_operation([&](auto operation) { expected.emplace((kernels.*operation).name()); });
  for (const Case& one : cases()) actual.insert(one.name);
  EXPECT_EQ(actual, expected);
}

TEST(VariantCases, NamesAreAnOperationsOwn) {
  const auto kernels = make_host_kernels(DType::f32);
  for (const Case& one : cases()) {
    std::set<std::string> names;
    for (std::size_t i = 0; i < one.variants(*kernels); ++i) {
      EXPECT_TRUE(names.insert(one.variant_name(*kernels, i)).second) << one.name;
    }
  }
}

}  // namespace variants_test
}  // namespace dflop::testing
