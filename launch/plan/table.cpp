// tfm-plan --table and --trace: what the components of a model are and take, as it was recorded.
#include <algorithm>
#include <cstdio>
#include <set>

#include "core/strings.h"
#include "launch/plan/output.h"

namespace tfm::launch {
namespace {

constexpr std::string_view kLayers = "layers.";

// Names of components: layers that are configured alike have that of the first of them.
class Components {
 public:
  explicit Components(const config::ModelConfig& m) {
    for (const auto& layers : m.stacks()) {
      std::vector<std::size_t>& first = first_.emplace_back();
      for (std::size_t l = 0; l < layers.size(); ++l)
        first.push_back(static_cast<std::size_t>(
            std::find(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(l), layers[l]) -
            layers.begin()));
    }
  }
  struct Place {
    std::string component;   // "decoder.layers.0.attention", "embedding"
    std::string rest;        // of the name behind it
    bool stands_for = true;  // it is not of a layer that another one stands for
    std::int64_t layer = 0;
  };
  Place of(const std::string& name) const {
    std::size_t at = 0, stack = 0;
    for (const std::string_view prefix : {"encoder.", "decoder."})
      if (first_.size() > 1 && name.starts_with(prefix))
        at = prefix.size(), stack = prefix[0] == 'd' ? 1 : 0;
    Place p{.component = name.substr(0, at)};
    if (std::string_view(name).substr(at).starts_with(kLayers)) {
      at += kLayers.size();
      const std::size_t dot = name.find('.', at);
      p.layer = std::stoll(name.substr(at, dot - at));
      const std::size_t first = first_[stack][static_cast<std::size_t>(p.layer)];
      p.stands_for = first == static_cast<std::size_t>(p.layer);
      p.component += std::string(kLayers) + std::to_string(first);
      at = dot == std::string::npos ? name.size() : dot + 1;
      if (at < name.size()) p.component += '.';
    }
    const std::size_t end = std::min(name.find('.', at), name.size());
    p.component += name.substr(at, end - at);
    p.rest = end < name.size() ? name.substr(end + 1) : std::string();
    return p;
  }
  // Of an op: the component of the name without the op's kind.
  Place of(const graph::Node& node) const {
    const std::size_t dot = node.name.rfind('.');
    return of(dot == std::string::npos ? "messages" : node.name.substr(0, dot));
  }

 private:
  std::vector<std::vector<std::size_t>> first_;  // by stack and layer
};

struct Row {
  std::set<std::int64_t> layers;
  std::int64_t parameters = 0, activations = 0;
  double flops = 0;
  std::vector<std::pair<std::string, std::int64_t>> shapes;  // of one of them, and how often
};

class Table {
 public:
  Row& row(const Components::Place& of) {
    const auto [found, fresh] = index_.try_emplace(of.component, rows_.size());
    if (fresh) rows_.emplace_back(of.component, Row());
    Row& row = rows_[found->second].second;
    row.layers.insert(of.layer);
    return row;
  }
  const std::vector<std::pair<std::string, Row>>& rows() const { return rows_; }

 private:
  std::map<std::string, std::size_t> index_;
  std::vector<std::pair<std::string, Row>> rows_;  // in the order of their first use
};

// "experts.*.up.weight": parts that differ in a number alone are counted.
std::string without_numbers(const std::string& name) {
  std::string text;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string word = name.substr(at, end - at);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    text += (at > 0 ? "." : "") + (number ? "*" : word);
    at = end + 1;
  }
  return text;
}

void add_parameters(const nn::ParameterSet& parameters, const Components& components,
                    Table& table) {
  for (int i = 0; i < parameters.size(); ++i) {
    const nn::ParameterSpec& spec = parameters.spec(i);
    if (!spec.trained || spec.evens_load) continue;
    for (const nn::PartSpec& part : spec.parts) {
      const Components::Place place = components.of(part.name);
      Row& row = table.row(place);
      row.parameters += part.rows * std::max<std::int64_t>(spec.cols, 1);
      if (!place.stands_for) continue;
      const std::string shape = std::to_string(part.rows) +
                                (spec.cols > 0 ? "x" + std::to_string(spec.cols) : std::string()),
                        text = without_numbers(place.rest) + " " + shape;
      const auto found =
          std::ranges::find(row.shapes, text, &std::pair<std::string, std::int64_t>::first);
      if (found == row.shapes.end())
        row.shapes.emplace_back(text, 1);
      else
        ++found->second;
    }
  }
}

// Of the forward and backward products of a step on `ranks` such ranks.
void add_flops(const plan::StepPlan& p, std::int64_t ranks, const Components& components,
               Table& table) {
  const plan::ShapePlan& shape = p.largest();
  for (const graph::Node& node : shape.training.tape->nodes())
    if (const double flops = node.op->work(graph::Phase::forward).flops(); flops > 0)
      table.row(components.of(node)).flops +=
          3 * flops * static_cast<double>(shape.micro_batches * ranks);
}

// Values of a micro-batch that a rank's forward pass keeps for its backward pass.
void add_activations(const plan::StepPlan& p, const Components& components, Table& table) {
  const graph::Program& program = p.largest().train_program;
  const auto& steps = program.instructions();
  const auto phase = [&](int step) {
    return steps[std::min(static_cast<std::size_t>(step), steps.size() - 1)].phase;
  };
  for (const graph::Buffer& b : program.buffers()) {
    if (b.kind != graph::Buffer::Kind::value || b.persistent || b.first < 0) continue;
    const int producer = program.recording().values()[static_cast<std::size_t>(b.value)].producer;
    if (producer < 0 || phase(b.first) != graph::Phase::forward ||
        phase(b.last) == graph::Phase::forward)
      continue;
    table.row(components.of(program.recording().nodes()[static_cast<std::size_t>(producer)]))
        .activations += b.bytes;
  }
}

Json describe(const std::string& name, const Row& row) {
  Json shapes = Json::array();
  for (const auto& [text, count] : row.shapes)
    shapes.push_back(count == 1 ? text : std::to_string(count) + " of " + text);
  return {
      {"name", name},       {"times", row.layers.size()},          {"parameters", row.parameters},
      {"flops", row.flops}, {"activation_bytes", row.activations}, {"shapes", std::move(shapes)}};
}

}  // namespace

Json describe_table(const plan::RankPlans& plans) {
  const Components components(plans.first().config.model);
  Table table;
  add_parameters(plans.first().model().parameters(), components, table);
  plans.each(
      [&](const plan::StepPlan& p, std::int64_t ranks) { add_flops(p, ranks, components, table); });
  for (const plan::StepPlan* p : plans.stages()) add_activations(*p, components, table);
  Json rows = Json::array();
  for (const auto& [name, row] : table.rows()) rows.push_back(describe(name, row));
  return rows;
}

Json describe_trace(const plan::RankPlans& plans) {
  const Components components(plans.first().config.model);
  Json rows = Json::array();
  for (const plan::StepPlan* p : plans.stages()) {
    const graph::Recorder& tape = *p->largest().training.tape;
    std::map<int, std::string> names;
    for (const graph::NamedValue& v : tape.named()) names.try_emplace(v.value.id, v.name);
    for (const graph::Node& node : tape.nodes()) {
      if (!components.of(node).stands_for) continue;
      for (const int v : node.out) {
        const graph::ValueInfo& info = tape.values()[static_cast<std::size_t>(v)];
        const auto named = names.find(v);
        rows.push_back({{"value", info.name},
                        {"name", named == names.end() ? Json() : Json(named->second)},
                        {"op", node.op->kind()},
                        {"shape", info.shape.str()},
                        {"dtype", name_of(info.dtype)},
                        {"bytes", info.bytes()}});
      }
    }
  }
  return rows;
}

void print_table(const Json& rows) {
  std::printf("%-32s %5s %14s %12s %16s  %s\n", "component", "times", "parameters", "FLOP a step",
              "bytes kept", "shapes of parameters");
  std::int64_t parameters = 0;
  double flops = 0;
  const auto line = [](const std::string& name, const std::string& times, std::int64_t count,
                       double work, const std::string& kept, const std::string& shapes) {
    std::printf("%-32s %5s %14lld %12.4g %16s  %s\n", name.c_str(), times.c_str(),
                static_cast<long long>(count), work, kept.c_str(), shapes.c_str());
  };
  for (const Json& r : rows) {
    std::string shapes;
    for (const Json& s : r["shapes"]) shapes += (shapes.empty() ? "" : ", ") + s.get<std::string>();
    line(r["name"], std::to_string(r["times"].get<int>()), r["parameters"], r["flops"],
         std::to_string(r["activation_bytes"].get<std::int64_t>()), shapes);
    parameters += r["parameters"].get<std::int64_t>(), flops += r["flops"].get<double>();
  }
  line("sum", "", parameters, flops, "", "");
}

void print_trace(const Json& rows) {
  std::printf("%-48s %-20s %-20s %-5s %14s  %s\n", "value", "op", "shape", "type", "bytes", "name");
  for (const Json& r : rows)
    std::printf("%-48s %-20s %-20s %-5s %14lld  %s\n", r["value"].get<std::string>().c_str(),
                r["op"].get<std::string>().c_str(), r["shape"].get<std::string>().c_str(),
                r["dtype"].get<std::string>().c_str(), r["bytes"].get<long long>(),
                r["name"].is_null() ? "" : r["name"].get<std::string>().c_str());
}

}  // namespace tfm::launch
