#include "inference/initial_weights.h"

#include <algorithm>
#include <set>

#include "checkpoint/parameters.h"
#include "core/strings.h"
#include "huggingface/sidecars.h"
#include "huggingface/weights.h"
#include "inference/loaded_model.h"

namespace tfm::inference {
namespace {

// Whether a part may be new, and is; empty: none may.
using Lacks = std::function<bool(const std::string& part)>;

// Parts of heads that learn labels may be new, if `has` does not know them.
Lacks lacks_heads(const config::ModelConfig& model, Lacks has) {
  std::vector<std::string> prefixes{"pooler."};
  for (const config::HeadConfig* head : model.labelled_heads())
    prefixes.push_back(head->name + ".");
  if (prefixes.size() == 1) return {};
  return [prefixes, has = std::move(has)](const std::string& part) {
    return std::ranges::any_of(prefixes, [&](const auto& p) { return part.starts_with(p); }) &&
           !has(part);
  };
}
Lacks lacks_heads(const config::ModelConfig& model, const huggingface::HuggingFaceModel& source) {
  return lacks_heads(
      model, [&source](const std::string& part) { return source.elements(part).has_value(); });
}
Lacks lacks_heads(const config::ModelConfig& model, const checkpoint::CheckpointReader& reader,
                  const std::string& prefix) {
  return lacks_heads(
      model, [&reader, prefix](const std::string& part) { return reader.has(prefix + part); });
}

// `read`, and initial values of what `lacks` names.
InitialWeights with_new_parts(InitialWeights weights, const Lacks& lacks,
                              const nn::ParameterSet& parameters, std::uint64_t seed) {
  for (const nn::PartSlice& p : parameters.slices())
    if (lacks && lacks(p.name)) weights.added.push_back(p.name);
  if (weights.added.empty()) return weights;
  weights.read = [read = std::move(weights.read), added = weights.added, &parameters, seed](
                     const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
    if (std::ranges::find(added, p.name) == added.end()) return read(p, first, count, out);
    parameters.initialize(seed, p, first, count, static_cast<float*>(out), 1);
  };
  return weights;
}

void check_parts(const huggingface::HuggingFaceModel& source, const std::string& path,
                 const nn::ParameterSet& parameters, const Lacks& lacks) {
  for (const nn::PartSlice& p : parameters.slices()) {
    if (lacks && lacks(p.name)) continue;
    const auto found = source.elements(p.name);
    if (found != p.full.elements())
      throw Error(ExitCode::input,
                  path +
                      (found ? ": its '" + p.name + "' has " + std::to_string(*found) +
                                   " elements; this configuration needs " + p.full.str()
                             : ": has no '" + p.name + "', which this configuration needs") +
                      "; remove keys of `model:` that change the shape beside model.init");
  }
}

std::vector<std::string> without(std::vector<std::string> names, const std::string& prefix,
                                 const nn::ParameterSet& parameters) {
  std::set<std::string> known;
  for (const nn::PartSlice& p : parameters.slices()) known.insert(prefix + p.name);
  std::erase_if(names, [&](const std::string& name) {
    return !name.starts_with(prefix) || known.contains(name);
  });
  return names;
}

// Whole rows that hold the range, or of columns whole slices of rows.
void read_range(const huggingface::HuggingFaceModel& source, const nn::PartSlice& p,
                std::int64_t first, std::int64_t count, float* out) {
  if (count == 0) return;
  const std::int64_t rows = p.full[0], cols = p.full.rank() > 1 ? p.full[1] : 1;
  huggingface::PartRange range{rows, cols, 0, rows, 0, cols};
  if (p.axis == 0) range.first_row = p.begin;
  if (p.axis == 1) range.first_col = p.begin, range.last_col = p.end;
  const std::int64_t width = range.last_col - range.first_col, from = first / width;
  range.last_row = range.first_row + ceil_div(first + count, width);
  range.first_row += from;
  if (range.elements() == count) return source.read(p.name, range, out);
  std::vector<float> whole_rows(static_cast<std::size_t>(range.elements()));
  source.read(p.name, range, whole_rows.data());
  std::copy_n(whole_rows.begin() + (first - from * width), count, out);
}

}  // namespace

config::InitialConfig config_of_directory(const std::string& path) {
  config::Config c =
      checkpoint_config(checkpoint_path(path, checkpoint::Verification::headers), {});
  c.model.preset.clear();
  return {c.model, c.data.tokenizer, c.data.source_tokenizer};
}

namespace {

// Error(usage) where a head has the labels of the directory's, in another order than its weights.
void check_label_order(const std::string& path, const config::ModelConfig& model) {
  const auto names = [](const config::HeadConfig& h) {
    return join(std::vector<std::string_view>(h.labels.begin(), h.labels.end()));
  };
  for (const config::HeadConfig& theirs : config_of_directory(path).model.heads)
    for (const config::HeadConfig& h : model.heads)
      if (h.name == theirs.name && h.labels != theirs.labels &&
          std::ranges::is_permutation(h.labels, theirs.labels))
        throw Error(ExitCode::usage, "model.heads: head " + in_quotes(h.name) + " has the labels " +
                                         names(h) + ", and the weights of " + path + " are of " +
                                         names(theirs) + "; leave labels out, or write that order");
}

}  // namespace

std::vector<std::string> check_initial_weights(const std::string& path,
                                               const config::ModelConfig& model,
                                               const nn::ParameterSet& parameters) {
  check_label_order(path, model);
  if (huggingface::is_huggingface(path)) {
    huggingface::HuggingFaceModel source(path);
    source.check(model);
    check_parts(source, path, parameters, lacks_heads(model, source));
    return without(source.parts(), "", parameters);
  }
  const checkpoint::CheckpointReader reader(
      checkpoint_path(path, checkpoint::Verification::headers));
  reader.check_headers();
  checkpoint::weights_of(reader, path, parameters, "model/", lacks_heads(model, reader, "model/"));
  return without(reader.names(), "model/", parameters);
}

InitialWeights open_initial_weights(const std::string& path, const config::ModelConfig& model,
                                    const nn::ParameterSet& parameters,
                                    std::optional<std::uint64_t> seed) {
  if (!huggingface::is_huggingface(path)) {
    const auto reader = std::make_shared<checkpoint::CheckpointReader>(path);
    const std::string prefix = checkpoint::has_average(*reader, parameters) ? "ema/" : "model/";
    const Lacks lacks = seed ? lacks_heads(model, *reader, prefix) : Lacks{};
    InitialWeights weights{
        [reader, read = checkpoint::weights_of(*reader, path, parameters, prefix, lacks)](
            const auto&... range) { read(range...); },
        reader->manifest().extra,
        {}};
    return with_new_parts(std::move(weights), lacks, parameters, seed.value_or(0));
  }
  const auto source = std::make_shared<huggingface::HuggingFaceModel>(path);
  source->check(model);
  const Lacks lacks = seed ? lacks_heads(model, *source) : Lacks{};
  check_parts(*source, path, parameters, lacks);
  source->check_copies();
  InitialWeights weights{
      [source](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* out) {
        read_range(*source, p, first, count, static_cast<float*>(out));
      },
      source->provenance(),
      {}};
  return with_new_parts(std::move(weights), lacks, parameters, seed.value_or(0));
}

}  // namespace tfm::inference
