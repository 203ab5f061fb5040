#include "report/inside.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "core/strings.h"
#include "io/safetensors.h"
#include "report/sections.h"

namespace tfm::report {
namespace {

constexpr std::int64_t kMostTokens = 96;  // of a map, from the first on
constexpr std::size_t kMostMaps = 48;
constexpr std::string_view kEncoder = "encoder.";

// Tensors whose names are `before`, a number and `after`, in the order of the numbers.
std::map<std::int64_t, std::string> numbered(const io::SafetensorsReader& file,
                                             const std::string& before, const std::string& after) {
  std::map<std::int64_t, std::string> all;
  for (const auto& [name, info] : file.tensors()) {
    if (!name.starts_with(before) || !name.ends_with(after) ||
        name.size() <= before.size() + after.size())
      continue;
    const std::string digits =
        name.substr(before.size(), name.size() - before.size() - after.size());
    if (digits.size() < 10 && digits.find_first_not_of("0123456789") == std::string::npos)
      all[std::stoll(digits)] = name;
  }
  return all;
}

std::vector<float> first_sequence(const io::SafetensorsReader& file, const std::string& name) {
  const io::TensorInfo& info = file.info(name);
  std::vector<float> all(
      static_cast<std::size_t>(info.elements() / std::max<std::int64_t>(info.shape[0], 1)));
  file.read<float>(name, 0, all);
  return all;
}

// (T, S) weights of one head.
struct HeadMap {
  const float* weights;
  std::int64_t queries, keys;
  double at(std::int64_t t, std::int64_t s) const { return weights[t * keys + s]; }
  // The mean over queries of the weight at a key `back` before, and of the entropy in bits.
  double mean_at(std::int64_t back) const {
    double sum = 0;
    for (std::int64_t t = back; t < std::min(queries, keys); ++t) sum += at(t, t - back);
    return sum / static_cast<double>(std::max<std::int64_t>(std::min(queries, keys) - back, 1));
  }
  double mean_at_first() const {
    double sum = 0;
    for (std::int64_t t = 0; t < queries; ++t) sum += at(t, 0);
    return sum / static_cast<double>(queries);
  }
  double entropy() const {
    double sum = 0;
    for (std::int64_t i = 0; i < queries * keys; ++i)
      if (weights[i] > 0) sum -= weights[i] * std::log2(weights[i]);
    return sum / static_cast<double>(queries);
  }
};

// Of the ids "1, 2, 3" of a file, or none.
std::vector<std::string> names_of(const io::SafetensorsReader& file, const std::string& ids,
                                  const tokenizer::Tokenizer* tokenizer) {
  std::vector<std::string> names;
  const auto found = file.metadata().find(ids);
  std::istringstream text(found == file.metadata().end() ? std::string() : found->second);
  for (std::string word; std::getline(text, word, ',');) {
    const std::int32_t id = std::atoi(word.c_str());
    names.push_back(tokenizer && tokenizer->knows(id) ? tokenizer->decode(std::span(&id, 1))
                                                      : std::to_string(id));
  }
  return names;
}

std::string draw_map(const std::string& title, const HeadMap& head,
                     const std::vector<std::string>& names) {
  HeatMap map{.id = id_of(title),
              .title = title,
              .description = "A row for each query, a column for each key."};
  for (std::int64_t t = 0; t < std::min(head.queries, kMostTokens); ++t) {
    const bool named = t < std::ssize(names);
    map.labels.push_back(std::to_string(t) + (named ? " " + shorten(names[t], 16) : ""));
    std::vector<double>& row = map.rows.emplace_back();
    for (std::int64_t s = 0; s < std::min(head.keys, kMostTokens); ++s)
      row.push_back(head.at(t, s));
  }
  return draw(map);
}

std::string attention_of(const io::SafetensorsReader& file, const std::string& name,
                         const std::vector<std::string>& names, std::size_t& maps) {
  const std::vector<std::int64_t>& shape = file.info(name).shape;
  if (shape.size() != 4 || file.info(name).elements() == 0) return "";
  const std::vector<float> weights = first_sequence(file, name);
  std::string html;
  Rows rows;
  for (std::int64_t h = 0; h < shape[1]; ++h) {
    const HeadMap head{weights.data() + h * shape[2] * shape[3], shape[2], shape[3]};
    rows.push_back({std::to_string(h), printed("%.3f", head.mean_at(0)),
                    printed("%.3f", head.mean_at(1)), printed("%.3f", head.mean_at_first()),
                    printed("%.2f", head.entropy())});
    if (++maps > kMostMaps) continue;
    const std::string title = name + ", head " + std::to_string(h);
    html +=
        figure(title,
               "A row for each query, a column for each key, the first " +
                   std::to_string(kMostTokens) + " at most; at full strength all of the weight.",
               draw_map(title, head, names), "");
  }
  return (html.empty() ? "" : "<div class=\"figures\">" + html + "</div>") +
         table(name + ": mean weights of each head, by where the key is; entropy in bits",
               {"head", "the query's own", "the one before", "the first", "entropy"}, rows);
}

std::string attention(const io::SafetensorsReader& file, const tokenizer::Tokenizer* tokenizer) {
  const std::vector<std::string> names = names_of(file, "ids", tokenizer),
                                 source = names_of(file, "source_ids", tokenizer);
  std::string html;
  std::size_t maps = 0;
  for (const std::string stack : {"", "encoder.", "decoder.", "cross."})
    for (const auto& [layer, name] : numbered(file, "attention." + stack, ""))
      html += attention_of(file, name, stack == kEncoder ? source : names, maps);
  if (maps > kMostMaps)
    html = "<p class=\"about\">The first " + std::to_string(kMostMaps) + " of " +
           std::to_string(maps) + " maps are drawn.</p>" + html;
  return html;
}

// The norm of the states of each token: mean, least and largest.
struct Norms {
  double mean = 0, least = 0, largest = 0;
};
Norms norms_of(const io::SafetensorsReader& file, const std::string& name) {
  const std::vector<float> x = first_sequence(file, name);
  const std::int64_t width = file.info(name).shape.back(), tokens = std::ssize(x) / width;
  Norms n{.least = INFINITY};
  for (std::int64_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (std::int64_t c = 0; c < width; ++c)
      sum += static_cast<double>(x[t * width + c]) * x[t * width + c];
    const double norm = std::sqrt(sum);
    n.mean += norm / static_cast<double>(tokens);
    n.least = std::min(n.least, norm), n.largest = std::max(n.largest, norm);
  }
  return n;
}

std::string residual(const io::SafetensorsReader& file, const std::string& stack) {
  std::vector<std::pair<double, std::string>> states;
  if (file.has(stack + "embeddings")) states.emplace_back(0, stack + "embeddings");
  for (const auto& [layer, name] : numbered(file, stack + "layers.", ".output"))
    states.emplace_back(layer + 1, name);
  std::erase_if(states, [&](const auto& s) {
    const io::TensorInfo& info = file.info(s.second);
    return info.shape.size() != 3 || info.elements() == 0;
  });
  if (states.empty()) return "";
  const std::string title = "Norm of the residual stream" +
                            (stack.empty() ? "" : " of the " + stack.substr(0, stack.size() - 1));
  LineChart chart{.id = id_of(title),
                  .title = title,
                  .description = "The mean norm of the states of the tokens behind each layer.",
                  .x_label = "layer",
                  .y_label = "norm",
                  .from_zero = true};
  chart.lines = {
      {.label = "mean"}, {.label = "least", .style = 1}, {.label = "largest", .style = 2}};
  Rows rows;
  for (const auto& [layer, name] : states) {
    const Norms n = norms_of(file, name);
    chart.lines[0].series.add(layer, n.mean);
    chart.lines[1].series.add(layer, n.least);
    chart.lines[2].series.add(layer, n.largest);
    rows.push_back(
        {name, printed("%.4g", n.mean), printed("%.4g", n.least), printed("%.4g", n.largest)});
  }
  return figure(title,
                "Over the tokens of the first sequence, behind each layer; 0: the embedding.",
                draw(chart), table(title, {"value", "mean", "least", "largest"}, rows));
}

}  // namespace

std::string inside(const std::string& path, const tokenizer::Tokenizer* tokenizer) {
  const io::SafetensorsReader file(path);
  std::string norms;
  for (const char* stack : {"", "encoder.", "decoder."}) norms += residual(file, stack);
  const std::string maps = attention(file, tokenizer);
  if (norms.empty() && maps.empty())
    throw Error(ExitCode::input,
                path +
                    ": there is nothing to draw; expected a file of tfm-probe with --attention "
                    "or with --activations 'layers.*.output'");
  return (norms.empty() ? "" : "<div class=\"figures\">" + norms + "</div>") + maps;
}

}  // namespace tfm::report
