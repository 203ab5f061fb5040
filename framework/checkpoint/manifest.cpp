#include "checkpoint/manifest.h"

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "io/file.h"
#include "io/json.h"

namespace tfm::checkpoint {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t max_elements = std::int64_t{1} << 60;

// A value of a manifest, with its file and path for error messages.
class Field {
 public:
  Field(const std::string& path, std::string at, const Json& value)
      : path_(path), at_(std::move(at)), value_(value) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ExitCode::input, path_ + ": field " + in_quotes(at_) + ": " + problem);
  }
  Field operator[](const char* key) const {
    if (!value_.is_object()) fail("expected an object");
    const auto found = value_.find(key);
    const std::string at = at_.empty() ? key : at_ + "." + key;
    if (found == value_.end()) Field(path_, at, value_).fail("is missing");
    return {path_, at, *found};
  }
  std::vector<Field> items() const {
    if (!value_.is_array()) fail("expected an array");
    std::vector<Field> out;
    for (const auto& v : value_)
      out.emplace_back(path_, at_ + "[" + std::to_string(out.size()) + "]", v);
    return out;
  }
  std::uint64_t unsigned_number() const {
    if (!value_.is_number_unsigned()) fail("expected an unsigned integer");
    return value_.get<std::uint64_t>();
  }
  std::int64_t number(std::int64_t lowest = 0) const {
    if (!value_.is_number_integer() ||
        (value_.is_number_unsigned() && value_.get<std::uint64_t>() > std::uint64_t{1} << 62) ||
        value_.get<std::int64_t>() < lowest)
      fail("expected an integer from " + std::to_string(lowest) + " to 2^62");
    return value_.get<std::int64_t>();
  }
  double real() const {
    if (!value_.is_number()) fail("expected a number");
    return value_.get<double>();
  }
  std::string text() const {
    if (!value_.is_string()) fail("expected a string");
    return value_.get<std::string>();
  }
  const Json& json() const { return value_; }

 private:
  const std::string& path_;
  std::string at_;
  const Json& value_;
};

Json to_json(const StoredChunk& p) {
  Json shape = Json::array();
  for (int i = 0; i < p.full_shape.rank(); ++i) shape.push_back(p.full_shape[i]);
  return {{"name", p.name}, {"shape", shape},   {"axis", p.axis},   {"begin", p.begin},
          {"end", p.end},   {"first", p.first}, {"count", p.count}, {"entry", p.entry}};
}

StoredChunk chunk_of(const Field& field) {
  StoredChunk p;
  p.name = field["name"].text();
  p.entry = field["entry"].text();
  std::int64_t extent[4];
  const auto dims = field["shape"].items();
  if (dims.size() > 4) field["shape"].fail("expected at most four dimensions");
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    extent[i] = dims[i].number();
    if (__builtin_mul_overflow(elements, extent[i], &elements) || elements > max_elements)
      dims[i].fail("is too large");
  }
  const auto e = extent;
  p.full_shape = dims.size() == 0   ? Shape{}
                 : dims.size() == 1 ? Shape{e[0]}
                 : dims.size() == 2 ? Shape{e[0], e[1]}
                 : dims.size() == 3 ? Shape{e[0], e[1], e[2]}
                                    : Shape{e[0], e[1], e[2], e[3]};
  p.axis = static_cast<int>(std::min<std::int64_t>(field["axis"].number(-1), 4));
  p.begin = field["begin"].number();
  p.end = field["end"].number();
  p.first = field["first"].number();
  p.count = field["count"].number();
  const auto rows = rows_of(p.full_shape, p);
  if (!rows || p.first > rows->elements() || p.count > rows->elements() - p.first)
    field.fail("the chunk of tensor " + in_quotes(p.name) + " lies outside its shape " +
               p.full_shape.str());
  return p;
}

void add_shard(Manifest& m, const Field& shard) {
  ShardFile file{shard["name"].text(), shard["bytes"].unsigned_number(), shard["xxh3_128"].text()};
  if (file.name.rfind("shard-", 0) != 0 || file.name.find('/') != std::string::npos)
    shard["name"].fail("is " + in_quotes(file.name) +
                       "; expected a name such as shard-00000-of-00001.safetensors");
  for (const auto& field : shard["pieces"].items()) {
    m.chunks.push_back(chunk_of(field));
    m.chunks.back().file = m.files.size();
  }
  m.files.push_back(std::move(file));
}

constexpr std::string_view checksum_key = ",\n \"checksum\": \"", ending = "\"\n}\n";

}  // namespace

std::string step_name(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
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
  const Json json = io::parse_ordered_json(text, where);
  add_shard(manifest, Field(where, "", json));
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

  const Json json = io::parse_ordered_json(body, path);
  const Field root(path, "", json);
  if (root["format"].text() != "tfm-checkpoint") root["format"].fail("expected 'tfm-checkpoint'");
  if (root["format_version"].number() != format_version)
    root["format_version"].fail("is " + json["format_version"].dump() + "; expected version " +
                                std::to_string(format_version));
  Manifest m;
  m.step = root["step"].number();
  m.updates = json.contains("updates") ? root["updates"].number() : m.step;
  m.samples_seen = root["samples_seen"].number();
  m.evaluation_due = json.contains("evaluation_due");
  if (json.contains("data_tokens")) m.data_tokens = root["data_tokens"].number();
  m.seed = root["seed"].unsigned_number();
  m.config = root["config"].text();
  const Field layout = root["layout"];
  if (!layout.json().is_object()) layout.fail("expected an object");
  for (const auto& [axis, size] : layout.json().items())
    m.layout[axis] = Field(path, "layout." + axis, size).number();
  if (!root["extra"].json().is_object()) root["extra"].fail("expected an object");
  m.extra = root["extra"].json().dump();
  if (json.contains("loss_scale")) {
    const Field scale = root["loss_scale"];
    m.loss_scale = {scale["value"].real(), scale["updates"].number(), true};
  }
  if (json.contains("best")) {
    const Field best = root["best"];
    const auto metric = config::value_of<config::Metric>(best["metric"].text());
    if (!metric) best["metric"].fail("expected a metric of eval.metrics");
    m.best = {*metric, best["step"].number(-1), best["value"].real(), best["since"].number()};
  }
  for (const auto& shard : root["files"].items()) add_shard(m, shard);
  std::map<std::string, Shape> shapes;
  for (const auto& p : m.chunks)
    if (shapes.emplace(p.name, p.full_shape).first->second != p.full_shape)
      throw Error(ExitCode::input, path + ": tensor " + in_quotes(p.name) +
                                       ": field 'shape' differs between its shards");
  return m;
}

}  // namespace tfm::checkpoint
