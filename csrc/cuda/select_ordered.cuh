// From a block's list in the order of bins, and counts that all blocks have sent, to the cut's
// winners: the last part of the usual path.
#pragma once

#include <cstdint>

#include "cuda/count_table.cuh"
#include "cuda/index_order.cuh"
#include "cuda/phase_clock.cuh"
#include "cuda/select.cuh"
#include "cuda/value_order.cuh"
#include "cuda/words.cuh"

namespace tl_topk {

// What all tables say. Ends in a barrier.
template <Scope S>
__device__ __forceinline__ TableCut find_cut(uint32_t k, const Team<S>& team, SharedState& state) {
  team.await_tables();
  mark(kPhaseExchange);
  tally_tables(state.tables, team.size_log2(), k, state.cut);
  mark(kPhaseCut);
  return state.cut;
}
// Not where the sample misled, nor where too many crowd into one bin.
__device__ __forceinline__ bool is_usual(const TableCut& cut) {
  return cut.overflow == 0 && cut.inside <= kMaxResidual && kWith<Part::kPairs>;
}

// How all blocks put the winners of the usual path in order together, where they can.
template <Dtype D, bool kMapped, Scope S>
struct InOrder {
  const Entry* list;
  const BinMap& map;
  const TableCut& cut;
  const Output<D, kMapped>& out;
  const Team<S>& team;
  void* sort_buffer;
  SharedState& state;

  __device__ __forceinline__ bool by_value() const {
    return write_by_value(list, map, cut, out, team, static_cast<uint64_t*>(sort_buffer), state);
  }
  __device__ __forceinline__ bool by_index(Places before) const {
    if (!out.marks()) return false;
    write_by_index(list, cut, before, out, team, static_cast<uint32_t*>(sort_buffer), state);
    return true;
  }
};

// How far the usual path went: nothing is done but counting, or the winners still have to be put in
// order, or that is done too.
enum class Progress : uint8_t { kUnusual, kSelected, kInOrder };

// From a list in order, and counts that all blocks have sent, to the cut's winners. `select(cut)`
// says whether they are all in their slots then.
template <Scope S, typename Select>
__device__ __forceinline__ Progress select_if_usual(uint32_t k, const Team<S>& team,
                                                    SharedState& state, Select&& select) {
  const TableCut cut = find_cut(k, team, state);
  if (!is_usual(cut)) return Progress::kUnusual;
  return select(cut) ? Progress::kInOrder : Progress::kSelected;
}

// The same in no order. Words that are not wanted are awaited as well, for what follows on an
// unusual path uses the memory that they come to.
template <Scope S, typename Words>
__device__ __forceinline__ Progress select_words(const OrderedList& survivors, const Words& words,
                                                 uint32_t k, const Team<S>& team,
                                                 SharedState& state) {
  const Progress progress = select_if_usual(k, team, state, [&](const TableCut& cut) {
    select_free(survivors, words, cut, k, team, state);
    return true;
  });
  if (ptx::unlikely(progress == Progress::kUnusual)) words.await();
  return progress;
}

// Of mapped launches in an order, or with more than one output.
template <Dtype D, Scope S>
__device__ __noinline__ Progress select_mapped(const OrderedList survivors, const BinMap map,
                                               const Output<D, true> out, const Team<S> team,
                                               void* sort_buffer, SharedState& state) {
  if (out.free_order()) {
    const AnyWords words(out, survivors, team.size_log2());
    return select_words(survivors, words, out.k, team, state);
  }
  return select_if_usual(out.k, team, state, [&](const TableCut& cut) {
    const InOrder<D, true, S> in_order{survivors.list, map, cut, out, team, sort_buffer, state};
    return select_by_cut(survivors, cut, out, team, state, in_order);
  });
}

// Of one output whose pages every block reads for itself. By value: what a function of its own is
// given the address of would lie in local memory.
template <Scope S>
__device__ __noinline__ Progress select_far_slots(const OrderedList survivors, FarSlots words,
                                                  uint32_t k, const Team<S> team,
                                                  SharedState& state) {
  words.pages.read_likely(survivors, k, team.size_log2());
  return select_words(survivors, words, k, team, state);
}

// Of any launch.
template <Dtype D, bool kMapped, Scope S>
__device__ __forceinline__ Progress select_ordered(const Params<kMapped>& params,
                                                   uint32_t row_number,
                                                   const OrderedList& survivors, const BinMap& map,
                                                   const Output<D, kMapped>& out,
                                                   const Team<S>& team, void* sort_buffer,
                                                   SharedState& state) {
  if constexpr (kMapped) {
    if (ptx::unlikely(params.only == OnlyOutput::kNone)) {
      return select_mapped(survivors, map, out, team, sort_buffer, state);
    }
    if (ptx::unlikely(params.only == OnlyOutput::kFarSlots)) {
      return select_far_slots(survivors, FarSlots(params, row_number), out.k, team, state);
    }
    const auto* const pages =
        reinterpret_cast<const uint32_t*>(survivors.list + survivors.capacity);
    const OnlyWords words(params, row_number, pages, state);
    return select_words(survivors, words, out.k, team, state);
  } else {
    return select_if_usual(out.k, team, state, [&](const TableCut& cut) {
      if (!ptx::unlikely(!out.plain())) {
        select_free(survivors, Indices{out.indices}, cut, out.k, team, state);
        return true;
      }
      const InOrder<D, false, S> in_order{survivors.list, map, cut, out, team, sort_buffer, state};
      return select_by_cut(survivors, cut, out, team, state, in_order);
    });
  }
}

}  // namespace tl_topk
