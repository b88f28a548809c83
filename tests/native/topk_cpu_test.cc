// The CPU backend against the contract: random problems of every kind, hostile rows, rows that
// fool the sample, offsets beyond 32 bits, and several callers at once.
#include "cpu/topk_cpu.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "contract.h"
#include "cpu/sample.h"
#include "key.h"
#include "row_span.h"
#include "rows.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using tl_topk::Dtype;
using tl_topk::IntVector;
using tl_topk::Order;
using tl_topk::Problem;
using tl_topk::TopKArgs;

constexpr Dtype kDtypes[] = {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16};
constexpr Order kOrders[] = {Order::kAny, Order::kIndex, Order::kValue};

// A problem with its input and guarded outputs.
class Case {
 public:
  // `pad` elements lie between rows of scores and of results; the base of the scores is `shift`
  // elements into an aligned buffer.
  Case(const Problem& problem, int64_t pad, int64_t shift)
      : problem_(problem), pad_(pad), shift_(shift), size_(element_size(problem.dtype)) {
    scores_.resize(static_cast<size_t>((problem.rows * stride() + shift) * size_));
  }

  void set_row(int64_t r, const std::vector<uint32_t>& bits) {
    for (int64_t i = 0; i < problem_.width; ++i) {
      std::memcpy(score(r, i), &bits[static_cast<size_t>(i)], static_cast<size_t>(size_));
    }
  }
  void set_spans(std::vector<int64_t> lengths, std::vector<int64_t> starts, bool wide) {
    lengths_ = std::move(lengths);
    starts_ = std::move(starts);
    narrow_lengths_.assign(lengths_.begin(), lengths_.end());
    narrow_starts_.assign(starts_.begin(), starts_.end());
    wide_ = wide;
  }

  // What lies outside of the rows beats everything within, so that no element of it goes unseen.
  void poison() {
    const contract::Format format = contract::format_of(problem_.dtype);
    const uint32_t best = format.infinity() | (problem_.largest ? 0 : format.sign());
    for (int64_t r = 0; r < problem_.rows; ++r) {
      const tl_topk::RowSpan span = row_span(problem_.width, lengths(), starts(), r);
      for (int64_t i = 0; i < stride(); ++i) {
        if (i >= span.begin && i < span.begin + span.length) continue;
        std::memcpy(score(r, i), &best, static_cast<size_t>(size_));
      }
    }
  }

  void run_and_check(int threads) {
    const int64_t k = problem_.k;
    const int64_t out_stride = k + pad_;
    const auto slots = static_cast<size_t>(problem_.rows * out_stride);
    std::vector<int32_t> indices(slots, kGuard);
    std::vector<char> values(slots * static_cast<size_t>(size_), kGuardByte);
    TopKArgs args;
    args.problem = problem_;
    args.scores = score(0, 0);
    args.scores_stride = stride();
    args.lengths = lengths();
    args.row_starts = starts();
    args.indices = indices.data();
    args.indices_stride = out_stride;
    args.values = problem_.values ? values.data() : nullptr;
    args.values_stride = out_stride;
    tl_topk::topk_cpu(args, threads);

    for (int64_t r = 0; r < problem_.rows; ++r) {
      check_row(r, indices.data() + r * out_stride, values.data() + r * out_stride * size_);
    }
  }

 private:
  static constexpr int32_t kGuard = -77;
  static constexpr char kGuardByte = 0x5a;

  int64_t stride() const { return problem_.width + pad_; }
  char* score(int64_t r, int64_t i) { return scores_.data() + (r * stride() + i + shift_) * size_; }
  IntVector lengths() const { return vector_of(lengths_, narrow_lengths_); }
  IntVector starts() const { return vector_of(starts_, narrow_starts_); }
  IntVector vector_of(const std::vector<int64_t>& wide, const std::vector<int32_t>& narrow) const {
    if (wide.empty()) return {};
    return wide_ ? IntVector{wide.data(), true} : IntVector{narrow.data(), false};
  }
  uint32_t load(const char* from) const {
    uint32_t bits = 0;
    std::memcpy(&bits, from, static_cast<size_t>(size_));
    return bits;
  }

  void check_row(int64_t r, int32_t* indices, const char* values) {
    const contract::Format format = contract::format_of(problem_.dtype);
    const tl_topk::RowSpan span = row_span(problem_.width, lengths(), starts(), r);
    std::vector<double> row;
    for (int64_t i = 0; i < span.length; ++i) {
      row.push_back(contract::value_of(load(score(r, span.begin + i)), format));
    }
    const std::vector<int32_t> expected =
        contract::select(row, problem_.k, problem_.largest, problem_.order);

    for (int64_t j = 0; problem_.values && j < problem_.k; ++j) {
      const uint32_t padding = format.infinity() | (problem_.largest ? format.sign() : 0);
      const uint32_t wanted = indices[j] < 0 ? padding : load(score(r, span.begin + indices[j]));
      CHECK(load(values + j * size_) == wanted);
    }
    const auto kept = static_cast<int64_t>(std::min(row.size(), expected.size()));
    if (problem_.order == Order::kAny) std::sort(indices, indices + kept);
    CHECK(std::equal(expected.begin(), expected.end(), indices));
    for (int64_t j = problem_.k; j < problem_.k + pad_; ++j) CHECK(indices[j] == kGuard);
    const int64_t written = problem_.values ? problem_.k : 0;
    for (int64_t b = written * size_; b < (problem_.k + pad_) * size_; ++b) {
      CHECK(values[b] == kGuardByte);
    }
  }

  Problem problem_;
  int64_t pad_;
  int64_t shift_;
  int64_t size_;
  std::vector<char> scores_;
  std::vector<int64_t> lengths_, starts_;
  std::vector<int32_t> narrow_lengths_, narrow_starts_;
  bool wide_ = false;
};

// A problem with rows of one pattern, the given width and k, and all else at random.
Case random_case(std::mt19937& random, rows::Pattern pattern, int64_t row_count, int64_t width,
                 int64_t k) {
  Problem problem;
  problem.rows = row_count;
  problem.width = width;
  problem.k = k;
  problem.dtype = kDtypes[random() % 3];
  problem.order = kOrders[random() % 3];
  problem.largest = random() % 2 == 0;
  problem.values = random() % 2 == 0;
  Case made(problem, random() % 4, random() % 3);
  for (int64_t r = 0; r < row_count; ++r) {
    made.set_row(r, rows::make(pattern, width, contract::format_of(problem.dtype), random));
  }
  return made;
}

std::vector<int64_t> random_ints(std::mt19937& random, int64_t count, int64_t width) {
  std::vector<int64_t> ints;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t choices[] = {0, -1, -4, 1, width, width + 5, width / 2, INT32_MIN, INT32_MAX};
    ints.push_back(random() % 2 == 0 ? choices[random() % 9]
                                     : static_cast<int64_t>(random()) % (width + 2));
  }
  return ints;
}

void random_problems(unsigned seed, int count) {
  std::mt19937 random(seed);
  for (int i = 0; i < count; ++i) {
    const int64_t row_count = random() % 4;
    const int64_t width = random() % (int64_t{1} << random() % 14);
    const int64_t k = random() % 8 == 0 ? width + 3 : random() % (width + 2);
    const rows::Pattern pattern = rows::kPatterns[random() % rows::kPatternCount];
    Case made = random_case(random, pattern, row_count, width, k);
    std::vector<int64_t> lengths, starts;
    if (random() % 2 == 0) lengths = random_ints(random, row_count, width);
    if (random() % 2 == 0) starts = random_ints(random, row_count, width);
    made.set_spans(lengths, starts, random() % 2 == 0);
    made.poison();
    made.run_and_check(static_cast<int>(random() % 3));
  }
}

void many_rows() {
  std::mt19937 random(5);
  for (const int64_t width : {100, 3000}) {
    Case made = random_case(random, rows::Pattern::kNormal, 60000 / width, width, 40);
    made.run_and_check(0);
  }
}

constexpr int64_t kWide = (1 << 19) + 777;  // enough to be divided among threads

void wide_rows() {
  std::mt19937 random(6);
  for (const rows::Pattern pattern : rows::kPatterns) {
    Case made = random_case(random, pattern, 1, kWide, random() % 2 == 0 ? 2048 : 20000);
    made.run_and_check(0);
    random_case(random, pattern, 2, 40000, 1000).run_and_check(2);
  }
}

float float_of(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Where sample_floor() looks, found out by asking for floors of a row that counts up, or down:
// all places but a few at either end.
std::vector<int64_t> sampled_places(int64_t width) {
  std::vector<int64_t> places;
  std::vector<uint64_t> scratch(static_cast<size_t>(tl_topk::kMostSamples));
  std::vector<float> counting(static_cast<size_t>(width));
  for (const float sign : {1.0f, -1.0f}) {
    for (int64_t i = 0; i < width; ++i) {
      counting[static_cast<size_t>(i)] = sign * static_cast<float>(i);
    }
    const tl_topk::Row<tl_topk::Float32> row = {reinterpret_cast<const char*>(counting.data()),
                                                width, true};
    for (int64_t k = 1; k < width; k += width / tl_topk::kMostSamples / 2) {
      const uint32_t floor = tl_topk::sample_floor(row, k, scratch.data());
      if (floor == tl_topk::kNanKey) break;
      places.push_back(static_cast<int64_t>(sign * float_of(tl_topk::bits_of_key(floor))));
    }
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

void rows_that_fool_the_sample() {
  constexpr int64_t kWidth = 1 << 19;
  const std::vector<int64_t> places = sampled_places(kWidth);
  CHECK(places.size() > static_cast<size_t>(tl_topk::kMostSamples * 3 / 4));
  std::vector<float> ascending(kWidth);
  for (int64_t i = 0; i < kWidth; ++i) ascending[static_cast<size_t>(i)] = static_cast<float>(i);

  struct Trick {
    float at_places;
    int64_t k;
  };
  // Low there: nearly everything passes the floor, in ascending order. High there: the floor is
  // one that too few reach.
  for (const Trick trick : {Trick{-1.0f, 2048}, Trick{1e9f, 4096}}) {
    std::vector<float> scores = ascending;
    for (const int64_t place : places) scores[static_cast<size_t>(place)] = trick.at_places;
    std::vector<uint32_t> bits(kWidth);
    std::memcpy(bits.data(), scores.data(), kWidth * sizeof(float));
    Case made({1, kWidth, trick.k, Dtype::kFloat32, Order::kAny, true, false}, 0, 0);
    made.set_row(0, bits);
    made.run_and_check(0);
    made.run_and_check(1);
  }
}

// Two rows more than 2^31 and 2^32 elements apart, in memory of which a few pages are touched.
void offsets_beyond_32_bits() {
  constexpr int64_t kWidth = 5000;
  for (const int64_t stride : {(int64_t{1} << 31) + 8, (int64_t{1} << 32) + 9}) {
    const auto bytes = static_cast<size_t>((stride + kWidth) * 2);
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::puts("offsets_beyond_32_bits: not run, no address space");
      return;
    }
    auto* const scores = static_cast<uint16_t*>(memory);
    scores[stride + 17] = 0x4000;
    scores[stride + 4999] = 0x4100;
    std::vector<int32_t> indices(4);
    TopKArgs args;
    args.problem = {2, kWidth, 2, Dtype::kBFloat16, Order::kValue, true, false};
    args.scores = scores;
    args.scores_stride = stride;
    args.indices = indices.data();
    args.indices_stride = 2;
    tl_topk::topk_cpu(args, 0);
    CHECK((indices == std::vector<int32_t>{0, 1, 4999, 17}));
    munmap(memory, bytes);
  }
}

// torch.set_flush_denormal() and -ffast-math start-up code set these modes for a whole thread.
void denormals_under_flush_to_zero() {
#if defined(__x86_64__)
  constexpr unsigned kFlushAndDenormalsAreZero = 0x8040;
  const unsigned before = _mm_getcsr();
  std::mt19937 random(7);
  Case made = random_case(random, rows::Pattern::kDenormal, 1, 20000, 500);
  _mm_setcsr(before | kFlushAndDenormalsAreZero);
  made.run_and_check(1);
  _mm_setcsr(before);
#endif
}

void callers_at_once() {
  std::vector<std::thread> callers;
  for (unsigned seed = 20; seed < 23; ++seed) {
    callers.emplace_back([seed] {
      random_problems(seed, 30);
      std::mt19937 random(seed);
      random_case(random, rows::Pattern::kNormal, 1, kWide, 2048).run_and_check(0);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace

int main() {
  std::printf("%s\n", tl_topk::cpu_simd_name());
  random_problems(1, 500);
  many_rows();
  wide_rows();
  rows_that_fool_the_sample();
  offsets_beyond_32_bits();
  denormals_under_flush_to_zero();
  callers_at_once();
  return check::status();
}
