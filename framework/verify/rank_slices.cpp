#include "verify/rank_slices.h"

#include <algorithm>
#include <numeric>

namespace tfm::verify {
namespace {

// A flat buffer of the device.
Parts slices_of(train::Engine& e, const void* flat, DType t) {
  const std::int64_t n = e.model().parameters().flat_elements();
  std::vector<std::byte> host(static_cast<std::size_t>(n * size_of(t)));
  device::download(e.device().stream(), host.data(), flat, std::ssize(host));
  Parts all;
  with_float(t, [&]<class T>() {
    const T* x = reinterpret_cast<const T*>(host.data());
    for (const nn::PartSlice& p : e.model().parameters().slices())
      all.emplace_back(x + p.offset, x + p.offset + p.elements());
  });
  return all;
}

// What is laid out as master weights are.
Parts slices_of_state(train::Engine& e, const void* state) {
  std::vector<float> host(static_cast<std::size_t>(e.optimizer().shards().elements));
  device::download(e.device().stream(), host.data(), state, std::ssize(host) * 4);
  Parts all;
  for (const nn::PartSlice& p : e.model().parameters().slices()) {
    auto& part = all.emplace_back(static_cast<std::size_t>(p.elements()));
    for (const optim::StateRange& r : e.optimizer().shards().ranges)
      for (std::int64_t i = std::max(r.begin, p.offset);
           i < std::min(r.end, p.offset + p.elements()); ++i)
        part[static_cast<std::size_t>(i - p.offset)] =
            host[static_cast<std::size_t>(r.state_offset + i - r.begin)];
  }
  return all;
}

nn::PartSlice alone(nn::PartSlice slice) {
  slice.offset = 0;
  return slice;
}

}  // namespace

Parts parameters_of(train::Engine& e) {
  return slices_of(e, e.whole_parameters().get(), e.plan().dtype);
}

Parts weights_of(train::Engine& e) {
  Parts all;
  for (const nn::PartSlice& p : e.model().parameters().slices())
    all.emplace_back(static_cast<std::size_t>(p.elements()));
  for (const optim::PartRange& r : e.optimizer().shards().parts) {
    std::vector<float> host(static_cast<std::size_t>(r.count()));
    e.optimizer().get_weights(e.device().stream(), e.flat(), r, 0, r.count(), host.data());
    std::ranges::copy(host, all[static_cast<std::size_t>(r.part)].begin() + r.first);
  }
  return all;
}

Parts gradients_of(train::Engine& e) {
  const optim::FlatBuffers& flat = e.flat();
  return flat.sharded.gradients ? slices_of_state(e, flat.gradients)
                                : slices_of(e, flat.gradients, DType::f32);
}

double square_sum(const double* x, std::int64_t n) {
  return std::transform_reduce(x, x + n, 0.0, std::plus<>(), [](double v) { return v * v; });
}

RankSlices::RankSlices(const train::Engine& e, const nn::ParameterSet& whole,
                       const comm::Mesh& mesh)
    : whole_(whole), mesh_(mesh), slices_(e.model().parameters().slices()) {
  for (const nn::PartSlice& p : slices_) {
    parts_.push_back(static_cast<std::size_t>(
        std::ranges::find(whole.slices(), p.name, &nn::PartSlice::name) - whole.slices().begin()));
    auto& ranges = own_.emplace_back();
    for (const optim::StateRange& r : e.optimizer().shards().ranges) {
      const std::int64_t begin = std::max(r.begin, p.offset),
                         end = std::min(r.end, p.offset + p.elements());
      if (begin < end) ranges.emplace_back(begin - p.offset, end - p.offset);
    }
  }
}

std::int64_t RankSlices::own_elements(std::size_t i) const {
  std::int64_t n = 0;
  for (const auto& [begin, end] : own_[i]) n += end - begin;
  return n;
}

double RankSlices::own_squares(std::size_t i, const std::vector<double>& slice) const {
  double all = 0;
  for (const auto& [begin, end] : own_[i]) all += square_sum(slice.data() + begin, end - begin);
  return all;
}

std::vector<double> RankSlices::sliced(std::size_t i, const double* part) const {
  std::vector<double> mine(static_cast<std::size_t>(slices_[i].elements()));
  nn::ParameterSet::scatter(alone(slices_[i]), part, mine.data());
  return mine;
}

Parts RankSlices::whole(const nn::ParameterSet& parameters, const Parts& mine) const {
  Parts all;
  for (const nn::PartSlice& p : whole_.slices())
    all.emplace_back(static_cast<std::size_t>(p.elements()));
  for (std::size_t i = 0; i < slices_.size(); ++i)
    if (parameters.first_of_copies(slices_[i].parameter, comm::kWorld))
      nn::ParameterSet::gather(alone(slices_[i]), mine[i].data(), all[parts_[i]].data());
  for (auto& part : all)  // exact: one term is not zero
    mesh_.world().all_reduce({part.data(), DType::f64, {std::ssize(part)}});
  return all;
}

Finding RankSlices::worst(const std::string& check,
                          const std::vector<Deviation>& deviations) const {
  return worst_part(check, mesh_, whole_.slices(), parts_, deviations);
}

}  // namespace tfm::verify
