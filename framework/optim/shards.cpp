#include "optim/shards.h"

#include <algorithm>

namespace tfm::optim {
namespace {

// No device has room for as many of the usual size; a plan of them alone takes gigabytes.
constexpr std::int64_t kMostBuckets = 1'000'000;

}  // namespace

std::vector<Bucket> make_buckets(const nn::ParameterSet& parameters, const comm::Layout& layout,
                                 std::int64_t bucket_elements) {
  std::vector<Bucket> buckets;
  for (const nn::Segment& s : parameters.segments()) {
    const std::int64_t size =
        parameters.by_layers()
            ? s.end - s.begin
            : round_up(bucket_elements, nn::ParameterSet::kGranule * layout.size(s.axes));
    if ((s.end - s.begin) / size > kMostBuckets)
      throw Error(ExitCode::usage,
                  "parallel.bucket_bytes: the " + std::to_string(s.end - s.begin) +
                      " parameters of a rank make more than " + std::to_string(kMostBuckets) +
                      " buckets; expected larger ones, smaller model.d_model and model.n_layers, "
                      "or more ranks of parallel.tensor and parallel.pipeline");
    for (std::int64_t end = s.end; end > s.begin; end = std::max(s.begin, end - size)) {
      Bucket b{s.axes, layout.shared(s.axes), std::max(s.begin, end - size), end, {}};
      for (const int i : parameters.lying_in(b.begin, b.end))
        if (b.begin < parameters.offset(i) + parameters.local_shape(i).elements())
          b.parameters.push_back(i);
      buckets.push_back(std::move(b));
    }
  }
  std::stable_sort(buckets.begin(), buckets.end(), [](const Bucket& a, const Bucket& b) {
    const auto first = [](const Bucket& x) {
      return x.parameters.empty() ? 1 << 30 : x.parameters.front();
    };
    return first(a) > first(b);
  });
  return buckets;
}

bool lends(const Bucket& b, const nn::ParameterSet& parameters) {
  return std::ranges::any_of(b.parameters,
                             [&](int i) { return !parameters.spec(i).borrowers.empty(); });
}

bool gathered_by_step(const Bucket& b, const nn::ParameterSet& parameters, int zero) {
  return (zero == 1 || zero == 2) && !lends(b, parameters);
}

std::int64_t lending_elements(const std::vector<Bucket>& buckets,
                              const nn::ParameterSet& parameters) {
  std::int64_t n = 0;
  for (const Bucket& b : buckets)
    if (lends(b, parameters)) n += b.end - b.begin;
  return n;
}

ElementRange share_of(const Bucket& b, const comm::Mesh& mesh) {
  const std::int64_t each = div_exact(b.end - b.begin, mesh.layout.size(b.shared));
  const int rank = mesh.place(b.shared);
  return {b.begin + each * rank, b.begin + each * (rank + 1)};
}

std::int64_t shared_elements(const std::vector<Bucket>& buckets, const comm::Layout& layout) {
  std::int64_t n = 0;
  for (const Bucket& b : buckets) n += div_exact(b.end - b.begin, layout.size(b.shared));
  return n;
}

namespace {

class Builder {
 public:
  Builder(const nn::ParameterSet& parameters, const comm::Mesh& mesh, const Rule& rule, int zero)
      : parameters_(parameters),
        mesh_(mesh),
        rule_(rule),
        zero_(zero),
        groups_(rule.groups()),
        group_elements_(groups_.size()) {}

  void add(std::int64_t begin, std::int64_t end, std::int64_t state_offset) {
    each_parameter(parameters_, begin, end, [&](int i, std::int64_t first, std::int64_t last) {
      const nn::ParameterSpec& spec = parameters_.spec(i);
      const int group = group_of(rule_, spec);
      // The states of a single group are laid out as master weights are.
      std::int64_t none = 0,
                   &at = group < 0 ? none : group_elements_[static_cast<std::size_t>(group)];
      const StateRange r{.begin = first,
                         .end = last,
                         .state_offset = state_offset + first - begin,
                         .decay = spec.decay,
                         .group = group,
                         .group_offset = groups_.size() == 1 ? state_offset + first - begin : at};
      at += last - first;
      add_parts(i, r);
      StateRange* before = layout_.ranges.empty() ? nullptr : &layout_.ranges.back();
      if (before && before->end == first && before->decay == r.decay && before->group == group &&
          before->state_offset + (first - before->begin) == r.state_offset &&
          before->group_offset + (first - before->begin) == r.group_offset)
        before->end = last;
      else
        layout_.ranges.push_back(r);
    });
  }

  // `most`: by group, the number of elements on the rank that has the most.
  ShardLayout finish(std::int64_t elements, const std::vector<std::int64_t>& most) {
    std::ranges::stable_sort(layout_.parts, {}, &PartRange::part);
    layout_.elements = elements;
    std::int64_t& at = layout_.state_elements;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const std::string& name : groups_[g].states) {
        layout_.states.push_back({name, static_cast<int>(g), at});
        at += groups_.size() == 1 ? elements : most[g];
      }
    layout_.rounds = rule_.rounds(parameters_, mesh_.layout);
    layout_.part_states = rule_.part_states(parameters_);
    for (PartState& s : layout_.part_states) {
      s.offset = at;
      at += s.shape.elements();
    }
    return std::move(layout_);
  }

 private:
  void add_parts(int parameter, const StateRange& r) {
    const nn::ParameterSpec& spec = parameters_.spec(parameter);
    const int first = parameters_.first_slice(parameter);
    // Under ZeRO, the ranks of a reduction have different shares; of other copies the first one
    // counts.
    const bool counted =
        mesh_.place(zero_ > 0 ? spec.copies_of_shares(mesh_.layout) : spec.copies()) == 0;
    for (int p = first; p < first + std::ssize(spec.parts); ++p) {
      const nn::PartSlice& s = parameters_.slices()[static_cast<std::size_t>(p)];
      const std::int64_t begin = std::max(r.begin, s.offset),
                         end = std::min(r.end, s.offset + s.elements());
      if (begin >= end) continue;
      PartRange part{r, p, begin - s.offset, counted};
      part.state_offset += begin - r.begin, part.group_offset += begin - r.begin;
      part.begin = begin, part.end = end;
      layout_.parts.push_back(part);
    }
  }

  const nn::ParameterSet& parameters_;
  const comm::Mesh& mesh_;
  const Rule& rule_;
  int zero_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::int64_t> group_elements_;
  ShardLayout layout_;
};

// By group: the number of elements on the rank that has the most, among ranks with the same layers.
std::vector<std::int64_t> most_elements(const nn::ParameterSet& parameters, const comm::Mesh& mesh,
                                        const Rule& rule, int zero,
                                        const std::vector<Bucket>& buckets) {
  const std::size_t groups = rule.groups().size();
  if (groups == 1) return {};
  const std::vector<int> ranks =
      zero > 0 ? mesh.layout.group(mesh.rank(), nn::kTokenAxes | nn::kModelAxes)
               : std::vector{mesh.rank()};
  std::vector<std::vector<std::int64_t>> n(groups, std::vector<std::int64_t>(ranks.size()));
  const auto add = [&](std::size_t rank, std::int64_t begin, std::int64_t end) {
    each_parameter(parameters, begin, end, [&](int i, std::int64_t first, std::int64_t last) {
      if (const int group = group_of(rule, parameters.spec(i)); group >= 0)
        n[static_cast<std::size_t>(group)][rank] += last - first;
    });
  };
  if (zero == 0) add(0, 0, parameters.flat_elements());
  if (zero > 0)
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (const Bucket& b : buckets) {
        const auto [begin, end] = share_of(b, comm::Mesh(mesh.layout, ranks[r]));
        add(r, begin, end);
      }
  std::vector<std::int64_t> most;
  for (const auto& of_ranks : n) most.push_back(*std::ranges::max_element(of_ranks));
  return most;
}

}  // namespace

ShardLayout shard_layout(const nn::ParameterSet& parameters, const comm::Mesh& mesh,
                         const Rule& rule, int zero, const std::vector<Bucket>& buckets) {
  Builder builder(parameters, mesh, rule, zero);
  if (zero == 0) {
    for (const nn::Segment& s : parameters.segments()) builder.add(s.begin, s.end, s.begin);
  } else {
    std::int64_t state = 0;
    for (const Bucket& b : buckets) {
      const auto [begin, end] = share_of(b, mesh);
      builder.add(begin, end, state);
      state += end - begin;
    }
  }
  return builder.finish(
      zero == 0 ? parameters.flat_elements() : shared_elements(buckets, mesh.layout),
      most_elements(parameters, mesh, rule, zero, buckets));
}

}  // namespace tfm::optim
