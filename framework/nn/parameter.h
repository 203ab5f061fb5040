#pragma once
// The parameters of a model, and where a rank's shares of them lie in flat buffers.
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "core/philox.h"
#include "graph/recorder.h"
#include "nn/parameter_spec.h"

namespace tfm::nn {

// A rank's share of one part: its elements of the whole part, of which there may be none, and their
// place in the flat buffer.
struct PartSlice {
  std::string name;
  int parameter = 0;
  int part = 0;   // of the parameter
  Shape full;     // (rows, cols) or (rows)
  int axis = -1;  // axis along which it is split, or -1
  // Range along the axis, or all rows if it is not split; without padding.
  std::int64_t begin = 0, end = 0;
  std::int64_t offset = 0;  // of the first element in the flat buffer; elements are contiguous
  std::int64_t elements() const {
    return axis < 0 ? full.elements()
                    : full.elements() / (full[axis] ? full[axis] : 1) * (end - begin);
  }
};

// Writes weights in their accumulation type: elements [first, first + count) of a slice to `out`.
using WeightSource =
    std::function<void(const PartSlice& slice, std::int64_t first, std::int64_t count, void* out)>;

// Calls f(element of the whole part, element of the slice, n) for each run of n elements of
// [first, first + count) of a slice that are contiguous in the whole part.
template <class F>
void each_run(const PartSlice& s, std::int64_t first, std::int64_t count, F&& f) {
  const std::int64_t cols = s.full.rank() > 1 ? s.full[1] : 1, last = first + count;
  if (s.axis != 1) return f((s.axis == 0 ? s.begin * cols : 0) + first, first, count);
  const std::int64_t width = s.end - s.begin;
  for (std::int64_t at = first; at < last;) {
    const std::int64_t row = at / width, n = std::min((row + 1) * width, last) - at;
    f(row * cols + s.begin + at % width, at, n);
    at += n;
  }
}

// Range of the flat buffers whose gradients are summed over the same axes: all of them, or (part
// of) a layer's.
struct Segment {
  comm::AxisSet axes;
  std::int64_t begin = 0, end = 0;  // the length is a multiple of kGranule * group size
};

class ParameterSet {
 public:
  static constexpr std::int64_t kGranule = 64;  // elements; every parameter starts at a multiple

  // `segment_elements`: if > 0, segments end with layers and have at most this many elements,
  // unless a single parameter has more. A parameter always lies in one segment.
  ParameterSet(comm::Layout layout, int rank, std::int64_t segment_elements = 0)
      : layout_(layout), rank_(rank), segment_elements_(segment_elements) {}

  // Returns the parameter's index, which is the same on all ranks. Its owner is the pipeline rank
  // of the last begin_stage(). Error(usage) where the model has too many elements.
  int add(ParameterSpec spec);
  void begin_stage(int stage) { stage_ = stage; }
  // Declares that a pipeline rank uses the parameter. If another one owns it, it is borrowed: the
  // borrower has a copy of the weights and its own gradient, which is added to the owner's.
  void use_at(int i, int stage);
  bool owned(int i) const { return specs_[i].stage == own_stage(); }
  bool borrowed(int i) const;
  std::vector<int> borrowed() const;  // in ascending order
  std::int64_t borrowed_elements() const { return borrowed_; }
  // Starts a new layer: parameters added later are used separately from earlier ones.
  void next_layer() { ++layer_; }
  // Assigns offsets; add() must not follow. An internal error if parts share a random stream.
  void finish();

  // Parameters of the whole model. Flat buffers, segments and slices are only of those that this
  // rank owns.
  int size() const { return static_cast<int>(specs_.size()); }
  const ParameterSpec& spec(int i) const { return specs_[i]; }
  Shape local_shape(int i) const;
  // First element in the flat buffers, or for a borrowed one in the buffers of borrowed parameters.
  std::int64_t offset(int i) const { return offsets_[i]; }
  std::int64_t padded_elements(int i) const { return padded_[i]; }
  // Owned parameters whose elements or padding overlap [begin, end) of the flat buffers, in order.
  std::span<const int> lying_in(std::int64_t begin, std::int64_t end) const;
  std::int64_t flat_elements() const { return flat_; }
  const std::vector<Segment>& segments() const { return segments_; }
  bool by_layers() const { return segment_elements_ > 0; }
  const std::vector<PartSlice>& slices() const { return slices_; }
  int first_slice(int i) const { return first_slices_[i]; }  // of an owned parameter
  std::int64_t total_elements() const;                       // of the whole model, without padding
  std::int64_t trained_elements() const;                     // of these, those that a loss trains
  // Whether this rank is the first of those along `axes` that hold the same weights.
  bool first_of_copies(int i, comm::AxisSet axes) const;

  // Writes the initial values of elements [first, first + count) of a slice. Element e of a part
  // depends only on (seed, part name, e), where PartSpec::initial names no other.
  template <class T>
  void initialize(std::uint64_t seed, const PartSlice& slice, std::int64_t first,
                  std::int64_t count, T* out, int threads) const;
  template <class T>
  void initialize(std::uint64_t seed, T* flat, int threads) const {
    for (const PartSlice& s : slices_)
      initialize(seed, s, 0, s.elements(), flat + s.offset, threads);
  }
  // Copy a slice, or a range of it, from or to the whole part, which is in row-major order.
  template <class T>
  static void scatter(const PartSlice& slice, std::int64_t first, std::int64_t count,
                      const T* whole, T* out) {
    each_run(slice, first, count, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
      std::copy_n(whole + from, n, out + to - first);
    });
  }
  template <class T>
  static void scatter(const PartSlice& slice, const T* whole, T* flat) {
    scatter(slice, 0, slice.elements(), whole, flat + slice.offset);
  }
  template <class T>
  static void gather(const PartSlice& slice, const T* flat, T* whole) {
    each_run(slice, 0, slice.elements(), [&](std::int64_t to, std::int64_t from, std::int64_t n) {
      std::copy_n(flat + slice.offset + from, n, whole + to);
    });
  }

  graph::Value record(graph::Recorder& r, int i) const {
    return r.parameter(i, specs_[i].parts[0].name, local_shape(i), {}, borrowed(i),
                       specs_[i].trained);
  }
  Tensor view(int i, void* flat, DType t) const;

 private:
  struct Shard {
    int count, place;
  };
  struct Range {
    std::size_t begin, end;
  };
  int own_stage() const { return layout_.place(rank_, kStageAxes); }
  Shard shard(const ParameterSpec& s, Placement along) const;
  Range own_parts(const ParameterSpec& s) const;
  std::vector<PartSlice> slices_of(int i) const;
  void check_names() const;

  comm::Layout layout_;
  int rank_;
  std::int64_t segment_elements_;
  int layer_ = 0, stage_ = 0;
  std::vector<ParameterSpec> specs_;
  std::vector<int> layers_;  // by parameter
  std::vector<std::int64_t> offsets_, padded_;
  std::vector<int> first_slices_, order_;  // order_: owned parameters in flat order
  std::vector<PartSlice> slices_;
  std::vector<Segment> segments_;
  std::int64_t flat_ = 0, borrowed_ = 0;
  double elements_ = 0;  // of all parts
};

}  // namespace tfm::nn
