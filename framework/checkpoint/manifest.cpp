#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "io/file.h"
#include "io/json.h"

namespace tfm::checkpoint {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t max_elements = std::int64_t{1} << 60;

std::int64_t number(const io::JsonNode& node, std::int64_t lowest = 0) {
  return node.integer(lowest, std::int64_t{1} << 62);
}

Json to_json(const StoredChunk& p) {
  Json shape = Json::array();
  for (int i = 0; i < p.full_shape.rank(); ++i) shape.push_back(p.full_shape[i]);
  return {{"name", p.name}, {"shape", shape},   {"axis", p.axis},   {"begin", p.begin},
          {"end", p.end},   {"first", p.first}, {"count", p.count}, {"entry", p.entry}};
}

StoredChunk chunk_of(const io::JsonNode& node) {
  StoredChunk p;
  p.name = node.at("name").string();
  p.entry = node.at("entry").string();
  std::int64_t extent[4];
  const auto dims = node.at("shape").items();
  if (dims.size() > 4) node.at("shape").fail("expected at most four dimensions");
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    extent[i] = number(dims[i]);
    if (__builtin_mul_overflow(elements, extent[i], &elements) || elements > max_elements)
      dims[i].fail("is too large");
  }
  const auto e = extent;
  p.full_shape = dims.size() == 0   ? Shape{}
                 : dims.size() == 1 ? Shape{e[0]}
                 : dims.size() == 2 ? Shape{e[0], e[1]}
                 : dims.size() == 3 ? Shape{e[0], e[1], e[2]}
                                    : Shape{e[0], e[1], e[2], e[3]};
  p.axis = static_cast<int>(std::min<std::int64_t>(number(node.at("axis"), -1), 4));
  p.begin = number(node.at("begin"));
  p.end = number(node.at("end"));
  p.first = number(node.at("first"));
  p.count = number(node.at("count"));
  const auto rows = rows_of(p.full_shape, p);
  if (!rows || p.first > rows->elements() || p.count > rows->elements() - p.first)
    node.fail("the chunk of tensor " + in_quotes(p.name) + " lies outside its shape " +
              p.full_shape.str());
  return p;
}

void add_shard(Manifest& m, const io::JsonNode& shard) {
  ShardFile file{shard.at("name").string(), shard.at("bytes").unsigned_integer(),
                 shard.at("xxh3_128").string()};
  if (file.name.rfind("shard-", 0) != 0 || file.name.find('/') != std::string::npos)
    shard.at("name").fail("is " + in_quotes(file.name) +
                          "; expected a name such as shard-00000-of-00001.safetensors");
  for (const auto& piece : shard.at("pieces").items()) {
    m.chunks.push_back(chunk_of(piece));
    m.chunks.back().file = m.files.size();
  }
  m.files.push_back(std::move(file));
}

constexpr std::string_view checksum_key = ",\n \"checksum\": \"", ending = "\"\n}\n";

}  // namespace

std::string step_name(std::int64_t step) {
  return printed("step-%08lld", static_cast<long long>(step));
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (name.size() < 13 || name.substr(0, 5) != "step-") return std::nullopt;
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0 ||
      step_name(step) != name)
    return std::nullopt;
  return step;
}

std::optional<StridedRows> rows_of(const Shape& full, const Slice& s) {
  if (s.axis < 0) return StridedRows{1, full.elements(), full.elements(), 0};
  if (s.axis >= full.rank() || s.begin < 0 || s.begin > s.end || s.end > full[s.axis])
    return std::nullopt;
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < s.axis; ++i) outer *= full[i];
  for (int i = s.axis + 1; i < full.rank(); ++i) inner *= full[i];
  return StridedRows{outer, (s.end - s.begin) * inner, full[s.axis] * inner, s.begin * inner};
}

// Members that are absent where they are empty.
static constexpr std::pair<const char*, std::string CheckpointInfo::*> kTexts[] = {
    {"directory", &CheckpointInfo::directory},
    {"init", &CheckpointInfo::init},
    {"tokenizer", &CheckpointInfo::tokenizer}};

static Json shard_json(const ShardFile& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"xxh3_128", file.xxh3_128},
          {"pieces", Json::array()}};
}

std::string chunk_list(const ShardFile& file, const std::vector<StoredChunk>& chunks) {
  Json shard = shard_json(file);
  for (const auto& p : chunks) shard["pieces"].push_back(to_json(p));
  return shard.dump();
}

void add_shard(Manifest& manifest, const std::string& text) {
  const std::string where = "another rank's shard";
  const nlohmann::json tree = io::parse_json(text, where);
  add_shard(manifest, io::JsonNode(tree, where));
}

std::string to_text(const Manifest& m) {
  Json shards = Json::array();
  for (const auto& f : m.files) shards.push_back(shard_json(f));
  for (const auto& p : m.chunks) shards[p.file]["pieces"].push_back(to_json(p));
  const Json extra = Json::parse(m.extra, nullptr, false);
  TFM_CHECK(extra.is_object(), "CheckpointInfo::extra must be a JSON object");
  Json body{{"format", "tfm-checkpoint"},
            {"format_version", format_version},
            {"step", m.step},
            {"samples_seen", m.samples_seen},
            {"seed", m.seed},
            {"layout", m.layout},
            {"config", m.config},
            {"extra", extra},
            {"files", shards}};
  if (m.updates != m.step) body["updates"] = m.updates;
  if (m.evaluation_due) body["evaluation_due"] = true;
  if (m.data_tokens > 0) body["data_tokens"] = m.data_tokens;
  for (const auto& [name, text] : kTexts)
    if (!(m.*text).empty()) body[name] = m.*text;
  if (m.loss_scale.dynamic)
    body["loss_scale"] = {{"value", m.loss_scale.value}, {"updates", m.loss_scale.updates}};
  if (m.best)
    body["best"] = {{"metric", config::word(m.best->metric)},
                    {"step", m.best->step},
                    {"value", m.best->value},
                    {"since", m.best->since}};
  std::string text = body.dump(1, ' ', false, Json::error_handler_t::replace);
  const std::string sum = io::Checksum::of(std::as_bytes(std::span(text)));
  text.resize(text.size() - 2);  // "\n}"
  return text.append(checksum_key).append(sum).append(ending);
}

Manifest from_text(const std::string& path, std::string_view text) {
  constexpr std::size_t tail = checksum_key.size() + 32 + ending.size();
  if (text.size() < tail || text.substr(text.size() - ending.size()) != ending ||
      text.substr(text.size() - tail, checksum_key.size()) != checksum_key)
    throw Error(
        ExitCode::input,
        path + ": expected the field 'checksum' at the end; the file is truncated or damaged");
  const std::string body = std::string(text.substr(0, text.size() - tail)) + "\n}";
  if (io::Checksum::of(std::as_bytes(std::span(body))) !=
      text.substr(text.size() - tail + checksum_key.size(), 32))
    throw Error(ExitCode::input,
                path + ": field 'checksum' does not match the content; the file is damaged");

  const nlohmann::json tree = io::parse_json(body, path);
  const io::JsonNode root(tree, path);
  if (root.at("format").string() != "tfm-checkpoint")
    root.at("format").fail("expected 'tfm-checkpoint'");
  const io::JsonNode version = root.at("format_version");
  if (const std::int64_t v = number(version); v != format_version)
    version.fail("is " + std::to_string(v) + "; expected version " +
                 std::to_string(format_version));
  Manifest m;
  m.step = number(root.at("step"));
  const auto updates = root.find("updates"), tokens = root.find("data_tokens");
  m.updates = updates ? number(*updates) : m.step;
  m.samples_seen = number(root.at("samples_seen"));
  m.evaluation_due = root.find("evaluation_due").has_value();
  if (tokens) m.data_tokens = number(*tokens);
  for (const auto& [name, text] : kTexts)
    if (const auto given = root.find(name)) m.*text = given->string();
  m.seed = root.at("seed").unsigned_integer();
  m.config = root.at("config").string();
  for (const auto& [axis, size] : root.at("layout").members()) m.layout[axis] = number(size);
  m.extra = root.at("extra").object();
  if (const auto scale = root.find("loss_scale"))
    m.loss_scale = {scale->at("value").number(), number(scale->at("updates")), true};
  if (const auto best = root.find("best")) {
    const auto metric = config::value_of<config::Metric>(best->at("metric").string());
    if (!metric) best->at("metric").fail("expected a metric of eval.metrics");
    m.best = {*metric, number(best->at("step"), -1), best->at("value").number(),
              number(best->at("since"))};
  }
  for (const auto& shard : root.at("files").items()) add_shard(m, shard);
  std::map<std::string, Shape> shapes;
  for (const auto& p : m.chunks)
    if (shapes.emplace(p.name, p.full_shape).first->second != p.full_shape)
      throw Error(ExitCode::input, path + ": tensor " + in_quotes(p.name) +
                                       ": field 'shape' differs between its shards");
  return m;
}

}  // namespace tfm::checkpoint
