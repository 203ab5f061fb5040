#include "plan/device_file.h"

#include <filesystem>

#include "config/field_kinds.h"

namespace tfm::plan {
namespace {

using namespace config::field;
using config::Field;
using config::FieldKind;
using config::FieldVisitor;

constexpr std::string_view kDevices = "devices", kNetworks = "networks";

Field rate(std::string_view name, std::string_view help) {  // above 0
  return required(Field{.name = name,
                        .help = help,
                        .kind = FieldKind::real,
                        .low = 0,
                        .high = 1e21,
                        .low_open = true});
}

void describe(DeviceModel::Link& l, FieldVisitor& v) {
  v.value(real("latency", 0, "seconds of one hop of a ring"), l.latency);
  v.value(rate("bandwidth", "bytes/s that one rank sends, as collectives of large tensors have it"),
          l.bandwidth);
}

void describe(AttentionRates& a, FieldVisitor& v) {
  v.value(rate("forward", "FLOP/s of long sequences; of a causal mask what is seen counts"),
          a.forward.rate);
  v.value(real("forward_half_length", 0, "keys with which a causal forward pass has half of it"),
          a.forward.half_length);
  v.value(rate("backward", "FLOP/s of the backward pass, 2.5 times the FLOPs of forward"),
          a.backward.rate);
  v.value(real("backward_half_length", 0, "keys with which a causal backward pass has half of it"),
          a.backward.half_length);
}

void describe(DeviceModel::Rates& r, FieldVisitor& v) {
  v.value(rate("peak", "FLOP/s of the datasheet, of which utilization is a share"), r.peak);
  v.value(rate("product", "FLOP/s of large matrix products"), r.product);
  v.value(real("product_half_size", 0,
               "cube root of m n k at which a product has half of it, where there are no "
               "multiprocessors"),
          r.product_half_size);
  v.section(required(section("head_64", "attention with heads of 64")),
            [&r](FieldVisitor& s) { describe(r.head_64, s); });
  v.section(required(section("head_128", "attention with heads of 128")),
            [&r](FieldVisitor& s) { describe(r.head_128, s); });
}

// The name of a network, or a section as in its file.
void describe_link(std::string_view name, std::string_view help, DeviceModel::Link& link,
                   FieldVisitor& v) {
  const Field f = required(config::field::text(name, help));
  v.special(f, {.type = "the name of a network, or a section with latency and bandwidth",
                .read =
                    [f, &link](config::FieldReader& reader, const config::YamlNode& node) {
                      std::string network;
                      if (!reader.read_value(f, node, network)) return;
                      try {
                        link = load_network(network);
                      } catch (const Error& e) {
                        reader.error(f, node, e.what());
                      }
                    },
                .flow =
                    [&link] {
                      return "{latency: " + number_text(link.latency) +
                             ", bandwidth: " + number_text(link.bandwidth) + "}";
                    },
                .keys = [&link](FieldVisitor& s) { describe(link, s); },
                .missing = [&link] { return link.bandwidth == 0; }});
}

void describe(DeviceModel& d, FieldVisitor& v) {
  v.value(required(config::field::text("name", "what the device is called")), d.name);
  v.value(required(config::field::text("source", "where the figures come from")), d.rates_from);
  v.value(
      config::field::choice("device", {"cpu", "cuda"},
                            "cpu: rates are those of one core, and a rank has its share of a "
                            "machine's cores; cuda: those of a GPU, of which each rank has one"),
      d.kind);
  v.value(with_word(Field{.name = "memory",
                          .help = "bytes of a GPU, or of a machine with processors; auto: of this "
                                  "machine",
                          .kind = FieldKind::size,
                          .low = 1 << 20,
                          .high = 1e18},
                    "auto"),
          d.memory_bytes);
  v.value(Field{.name = "reserve",
                .help = "bytes of a GPU that a plan leaves to driver and libraries; a tenth of the "
                        "memory of a machine",
                .kind = FieldKind::size,
                .low = 0,
                .high = 1e18},
          d.reserve_bytes);
  v.value(rate("memory_bandwidth", "bytes/s, reading and writing, as a copy has it"), d.bandwidth);
  v.value(real("launch", 0, "least seconds from one kernel's start to the next one's"), d.launch);
  v.value(number("multiprocessors", 0, "that products are cut into tiles for; 0: into any size"),
          d.multiprocessors);
  v.value(Field{.name = "sustained",
                .help = "share of the rates of products and attention that a whole step keeps",
                .kind = FieldKind::real,
                .low = 0,
                .high = 1,
                .low_open = true},
          d.sustained);
  v.value(flag("overlap", "collectives run beside kernels"), d.overlaps);
  v.section(required(section("fp32", "rates of fp32")),
            [&d](FieldVisitor& s) { describe(d.wide, s); });
  v.section(required(section("bf16", "rates of bf16 and fp16")),
            [&d](FieldVisitor& s) { describe(d.half, s); });
  v.value(number("ranks_per_node", 1, "GPUs of a node"), d.ranks_per_node);
  describe_link("node", "network between the ranks of a node", d.node, v);
  describe_link("network", "network between nodes", d.network, v);
}

// A file of a network has a source beside its values.
struct Network {
  DeviceModel::Link link;
  std::string name = "measured", source = "nothing";
};
void describe(Network& n, FieldVisitor& v) {
  v.value(required(config::field::text("name", "what the network is called")), n.name);
  v.value(required(config::field::text("source", "where the figures come from")), n.source);
  describe(n.link, v);
}

template <class T>
T read(config::Diagnostics& out, int source) {
  T value;
  const auto fields = [&](FieldVisitor& v) { describe(value, v); };
  static const std::vector<std::string> keys = [] {
    T scratch;
    return config::field_keys([&](FieldVisitor& v) { describe(scratch, v); });
  }();
  const auto root = config::parse_yaml(out, source);
  if (root) config::FieldReader(*root, out, keys, {}, false).read(fields);
  out.throw_if_any();
  return value;
}

template <class T>
T parse(const std::string& text, const std::string& name) {
  config::Diagnostics out;
  const int source = out.add_file(name, text);
  return read<T>(out, source);
}

std::vector<std::string> built_in(std::string_view folder) {
  std::vector<std::string> names;
  for (const Description& d : descriptions())
    if (d.folder == folder) names.emplace_back(d.name);
  return names;
}

template <class T>
T load(std::string_view folder, const std::string& name_or_path) {
  for (const Description& d : descriptions())
    if (d.folder == folder && d.name == name_or_path)
      return parse<T>(std::string(d.text), std::string(folder) + "/" + name_or_path + ".yaml");
  std::error_code too_long;
  if (!name_or_path.ends_with(".yaml") && !std::filesystem::exists(name_or_path, too_long)) {
    const std::vector<std::string> names = built_in(folder);
    const std::string near(nearest(name_or_path, {names.begin(), names.end()}));
    std::string known;
    for (const std::string& n : names) known += (known.empty() ? "" : ", ") + n;
    throw Error(ExitCode::usage, "'" + name_or_path + "' is not one of the " + std::string(folder) +
                                     " " + known + ", nor the path of a file that describes one" +
                                     (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  config::Diagnostics out;
  int source = 0;
  if (!config::read_yaml_file(name_or_path, out, source)) out.throw_if_any();
  return read<T>(out, source);
}

DeviceModel checked(DeviceModel d, const std::string& name) {
  const bool gpu = d.kind == config::DeviceKind::cuda;
  if (gpu && d.memory_bytes == 0)
    throw Error(ExitCode::usage, name + ": memory: auto is for device cpu; expected bytes");
  if (gpu && d.reserve_bytes >= d.memory_bytes)
    throw Error(ExitCode::usage,
                name + ": reserve is not less than memory; expected a smaller one");
  return d;
}

}  // namespace

DeviceModel load_device(const std::string& name_or_path) {
  return checked(load<DeviceModel>(kDevices, name_or_path), name_or_path);
}
DeviceModel::Link load_network(const std::string& name_or_path) {
  return load<Network>(kNetworks, name_or_path).link;
}
DeviceModel parse_device(const std::string& text, const std::string& name) {
  return checked(parse<DeviceModel>(text, name), name);
}
DeviceModel::Link parse_network(const std::string& text, const std::string& name) {
  return parse<Network>(text, name).link;
}

std::string dump_device(const DeviceModel& device) {
  DeviceModel copy = device;
  return config::dump_fields([&](FieldVisitor& v) { describe(copy, v); });
}
std::string dump_network(const std::string& name, const std::string& source,
                         const DeviceModel::Link& network) {
  Network n{network, name, source};
  return config::dump_fields([&](FieldVisitor& v) { describe(n, v); });
}

std::vector<std::string> built_in_devices() { return built_in(kDevices); }
std::vector<std::string> built_in_networks() { return built_in(kNetworks); }

DeviceModel gpu_model(Target gpu) {
  DeviceModel model = load_device(config::word(gpu));
  TFM_CHECK(model.kind == config::DeviceKind::cuda, "a processor has no model of a GPU");
  return model;
}
DeviceModel reference_core() { return load_device(config::word(Target::cpu)); }

}  // namespace tfm::plan
