#include "huggingface/weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>

#include "core/dtype.h"
#include "huggingface/config.h"
#include "io/file.h"
#include "io/json.h"

namespace tfm::huggingface {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMostJson = 256 << 20;
constexpr std::int64_t kShardBytes = 5'000'000'000;

// `count` elements, `step` bytes apart.
template <class T>
void decode_as(const std::byte* from, std::int64_t step, std::int64_t count, float* to,
               std::int64_t to_step) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * step, sizeof value);
    to[i * to_step] = static_cast<float>(value);
  }
}

template <class T>
void write_half(io::SafetensorsWriter& writer, const std::vector<float>& values) {
  std::vector<T> raw;
  raw.reserve(values.size());
  for (const float v : values) raw.emplace_back(v);
  writer.write(std::as_bytes(std::span(raw)));
}
void write_as(io::SafetensorsWriter& writer, const std::vector<float>& values,
              const std::string& dtype) {
  if (dtype == "F32") return writer.write(std::span<const float>(values));
  dtype == "BF16" ? write_half<bf16>(writer, values) : write_half<f16>(writer, values);
}

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return n;
}

// Row-major (rows, cols) -> (cols, rows).
std::vector<float> transposed(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  std::vector<float> y(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      y[static_cast<std::size_t>(c * rows + r)] = x[static_cast<std::size_t>(r * cols + c)];
  return y;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string s;
  for (std::int64_t d : shape) s += (s.empty() ? "" : ", ") + std::to_string(d);
  return "(" + s + ")";
}

constexpr const char* kUnused = "unused.safetensors";

bool is_weight_type(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}
bool of_weights(const std::string& file) {
  static const std::regex names(R"(model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?)");
  return std::regex_match(file, names);
}
bool carried(const std::string& file) {  // of a tokenizer, or of generation
  static const std::regex names(
      R"((tokenizer|vocab|merges|special_tokens|added_tokens|spiece|source|target|sentencepiece|generation_config|preprocessor)[\w.]*\.(json|txt|model|spm))");
  return std::regex_match(file, names);
}

}  // namespace

bool is_huggingface(const std::string& dir) { return fs::exists(dir + "/config.json"); }

void copy_companions(const std::string& from, const std::string& to) {
  fs::create_directories(to);
  if (fs::equivalent(from, to)) return;
  for (const auto& e : fs::directory_iterator(from))
    if (carried(e.path().filename().string()))
      fs::copy_file(e.path(), fs::path(to) / e.path().filename(),
                    fs::copy_options::overwrite_existing);
}

HuggingFaceModel::HuggingFaceModel(const std::string& dir) : dir_(dir) {
  const std::string index = dir + "/model.safetensors.index.json",
                    single = dir + "/model.safetensors";
  const Json config_tree = read_config(dir);
  const io::JsonNode config(config_tree, dir + "/config.json");
  architecture_ = &architecture_of(config);
  architecture_->read(config);  // what is wrong with it is told before the weights are looked for
  if (fs::exists(single) || !fs::exists(index)) {
    open("model.safetensors");
  } else {
    const Json tree = io::read_json_file(index, kMostJson);
    std::map<std::string, int> shards;
    for (const auto& [tensor, file] : io::JsonNode(tree, index).at("weight_map").members()) {
      const std::string& name = file.string();
      if (name.empty() || name[0] == '.' || name.find('/') != name.npos ||
          name.find('\\') != name.npos)
        file.fail(in_quotes(name) +
                  " is not a file name; expected a file of this directory, without a path");
      shards[name];
    }
    for (const auto& [name, unused] : shards) open(name);
    for (const auto& [tensor, file] : io::JsonNode(tree, index).at("weight_map").members())
      if (!tensors_.contains(architecture_->current_name(tensor)))
        file.fail(in_quotes(tensor) + " is missing from the shards");
  }
  model_ = model_of(config, [&](const std::string& tensor) { return tensors_.contains(tensor); });
  check(model_);
}

void HuggingFaceModel::open(const std::string& file) {
  files_.push_back(std::make_unique<io::SafetensorsReader>(dir_ + "/" + file));
  for (const auto& [name, info] : files_.back()->tensors())
    if (!tensors_.emplace(architecture_->current_name(name), Place{files_.size() - 1, name}).second)
      throw Error(ExitCode::input, files_.back()->path() + ": tensor " + in_quotes(name) +
                                       " is also in another file");
}

void HuggingFaceModel::fail(const Place& place, const std::string& problem) const {
  throw Error(ExitCode::input,
              files_[place.file]->path() + ": tensor " + in_quotes(place.name) + problem);
}

bool HuggingFaceModel::could_be_copies(const Place& a, const Place& b) const {
  return info(a).dtype == info(b).dtype && info(a).shape == info(b).shape;
}

bool HuggingFaceModel::are_copies(const Place& a, const Place& b) const {
  const auto p = bytes(a), q = bytes(b);
  return could_be_copies(a, b) && p.size() == q.size() &&
         (p.data() == q.data() || std::memcmp(p.data(), q.data(), p.size()) == 0);
}

void HuggingFaceModel::check_tensor(const ExchangedTensor& expected, const Place& place) const {
  const io::TensorInfo& found = info(place);
  if (found.shape != expected.shape)
    fail(place, " is " + shape_text(found.shape) + "; expected " + shape_text(expected.shape));
  if (!is_weight_type(found.dtype))
    fail(place, " has type " + found.dtype + "; expected F32, F16 or BF16");
}

void HuggingFaceModel::check_more(const std::string& name, const Place& place) {
  if (architecture_->is_buffer(name)) return buffers_.push_back(name);
  const std::string original = architecture_->original_of(name);
  if (original.empty())
    fail(place, " is unknown: a " + std::string(architecture_->name) +
                    " model of this configuration has no such tensor");
  const auto found = tensors_.find(original);
  if (found == tensors_.end()) return;
  copies_[name] = original;
  if (!could_be_copies(place, found->second)) fail_copy(name);
}

void HuggingFaceModel::fail_copy(const std::string& name) const {
  fail(tensors_.at(name), " differs from " + in_quotes(copies_.at(name)) +
                              ", to which it is tied in a " + architecture_->name +
                              " model of this configuration; expected equal values");
}

void HuggingFaceModel::check(const config::ModelConfig& model) {
  parts_.clear(), overridden_.clear(), copies_.clear(), buffers_.clear();
  const std::vector<ExchangedTensor> expected = architecture_->exchanged(model);
  const auto missing = [&](const ExchangedTensor& t) {
    throw Error(ExitCode::input, dir_ + ": tensor " + in_quotes(t.name) +
                                     " is missing; expected shape " + shape_text(t.shape));
  };
  std::set<std::string> known;
  for (const ExchangedTensor& t : expected) {
    known.insert(t.name);
    const auto found = tensors_.find(t.name);
    if (t.optional && found == tensors_.end()) continue;
    for (std::size_t i = 0; i < t.parts.size(); ++i) {
      const auto before = parts_.find(t.parts[i]);
      if (before != parts_.end()) overridden_[before->second.first.name] = t.parts[i];
      parts_[t.parts[i]] = {t, i};
    }
    if (found == tensors_.end()) missing(t);
    check_tensor(t, found->second);
  }
  for (const ExchangedTensor& t : expected)
    if (!parts_.contains(t.parts[0])) missing(t);
  for (const auto& [name, place] : tensors_)
    if (!known.contains(name)) check_more(name, place);
}

void HuggingFaceModel::check_copies() const {
  for (const auto& [name, original] : copies_)
    if (!are_copies(tensors_.at(name), tensors_.at(original))) fail_copy(name);
}

void HuggingFaceModel::read(const std::string& part, const PartRange& range, float* out) const {
  const auto found = parts_.find(part);
  TFM_CHECK(found != parts_.end(), "no tensor of the directory holds " + part);
  const auto& [tensor, place] = found->second;
  const std::int64_t stacked = range.rows * static_cast<std::int64_t>(tensor.parts.size()),
                     above = range.rows * static_cast<std::int64_t>(place),
                     cols = range.last_col - range.first_col;
  TFM_CHECK(stacked * range.cols == elements(tensor.shape), part + " is of another shape");
  const Place& file = tensors_.at(tensor.name);
  const std::byte* const data = bytes(file).data();
  const auto decode = [&]<class T>(T) {
    const std::int64_t size = sizeof(T), row = tensor.transposed ? size : size * range.cols,
                       column = tensor.transposed ? size * stacked : size;
    const std::byte* const first = data + above * row + range.first_col * column;
    // Along the rows of the file.
    if (tensor.transposed)
      for (std::int64_t c = 0; c < cols; ++c)
        decode_as<T>(first + range.first_row * row + c * column, row,
                     range.last_row - range.first_row, out + c, cols);
    else
      for (std::int64_t r = range.first_row; r < range.last_row; ++r)
        decode_as<T>(first + r * row, column, cols, out + (r - range.first_row) * cols, 1);
  };
  const std::string& dtype = info(file).dtype;
  dtype == "F32" ? decode(float{}) : dtype == "BF16" ? decode(bf16{}) : decode(f16{});
}

std::vector<std::string> HuggingFaceModel::unused() const {
  std::vector<std::string> names = buffers_;
  for (const auto& [name, part] : overridden_)
    if (!are_copies(tensors_.at(name), tensors_.at(parts_.at(part).first.name)))
      names.push_back(name);
  std::ranges::sort(names);
  return names;
}

std::string HuggingFaceModel::provenance(const std::string& companions) const {
  Json j;
  j["directory"] = fs::absolute(companions.empty() ? dir_ : companions).string();
  j["config"] = read_config(dir_);
  for (const auto& [name, place] : tensors_) j["dtypes"][name] = info(place).dtype;
  j["unused"] = Json::object();
  for (const std::string& name : unused())
    j["unused"][name] = io::Checksum::of(bytes(tensors_.at(name)));
  return j.dump();
}

void HuggingFaceModel::keep_companions(const std::string& to) const {
  copy_companions(dir_, to);
  fs::remove(to + "/" + kUnused);
  const std::vector<std::string> kept = unused();
  if (kept.empty()) return;
  std::vector<io::TensorEntry> entries;
  for (const std::string& name : kept) {
    const io::TensorInfo& of = info(tensors_.at(name));
    entries.push_back({name, of.dtype, of.shape});
  }
  io::SafetensorsWriter writer(to + "/" + kUnused, entries);
  for (const std::string& name : kept) writer.write(bytes(tensors_.at(name)));
  writer.finish();
}

std::vector<float> compose(const ExchangedTensor& tensor,
                           const std::function<std::vector<float>(const std::string& part)>& part) {
  std::vector<float> stack;
  for (const std::string& name : tensor.parts) {
    const std::vector<float> values = part(name);
    stack.insert(stack.end(), values.begin(), values.end());
  }
  TFM_CHECK(static_cast<std::int64_t>(stack.size()) == elements(tensor.shape),
            "parts of " + tensor.name + " do not make its shape");
  return tensor.transposed ? transposed(stack, tensor.shape[1], tensor.shape[0]) : stack;
}

namespace {

// A tensor of an export: composed of parts, or `kept` as it came.
struct Written {
  ExchangedTensor tensor;
  std::string dtype = "F32";
  std::span<const std::byte> kept = {};

  std::int64_t bytes() const {
    return kept.data() ? static_cast<std::int64_t>(kept.size())
                       : elements(tensor.shape) * (dtype == "F32" ? 4 : 2);
  }
  std::int64_t element_bytes() const {
    return bytes() / std::max<std::int64_t>(1, elements(tensor.shape));
  }
};

// What HuggingFaceModel::provenance tells, of a checkpoint that anybody may have written.
struct Origin {
  std::string config, directory;
  bool known = false;                         // which tensors there were
  std::map<std::string, std::string> dtypes;  // by name
  std::map<std::string, std::string> unused;  // checksum by name

  explicit Origin(const std::string& provenance) {
    const Json tree =
        provenance.empty() ? Json::object() : io::parse_json(provenance, "the checkpoint's origin");
    const io::JsonNode node(tree, "the checkpoint's origin");
    if (const auto object = node.find("config")) object->members(), config = tree["config"].dump();
    directory = node.text("directory", "");
    if (const auto list = node.find("dtypes"))
      for (const auto& [name, type] : list->members()) dtypes[name] = type.string();
    const auto list = node.find("unused");
    known = list.has_value();
    if (known)
      for (const auto& [name, checksum] : list->members()) unused[name] = checksum.string();
  }
};

class Export {
 public:
  Export(const config::ModelConfig& model, const Origin& origin)
      : architecture_(architecture_for(model, model_type(origin.config))), origin_(origin) {
    for (const ExchangedTensor& t : architecture_.exchanged(model))
      if (!t.optional || !origin.known || origin.dtypes.contains(t.name)) add(t);
    for (const auto& [name, unread] : origin.dtypes)
      if (!written_.contains(name) && !origin.unused.contains(name)) add_copy(name);
    if (!origin.unused.empty()) keep();
  }

  // Of at most kShardBytes each. Wider types first keep every tensor aligned.
  std::vector<std::vector<Written>> shards() const {
    std::vector<std::vector<Written>> shards(1);
    std::int64_t filled = 0;
    for (const std::string& name : order_) {
      const Written& w = written_.at(name);
      if (filled > 0 && filled + w.bytes() > kShardBytes) shards.emplace_back(), filled = 0;
      shards.back().push_back(w);
      filled += w.bytes();
    }
    for (auto& shard : shards)
      std::stable_sort(shard.begin(), shard.end(), [](const Written& a, const Written& b) {
        return a.element_bytes() > b.element_bytes();
      });
    return shards;
  }

 private:
  void add(const ExchangedTensor& t) {
    const auto type = origin_.dtypes.find(t.name);
    const std::string dtype = type == origin_.dtypes.end() ? "F32" : type->second;
    if (!origin_.unused.contains(t.name) && !is_weight_type(dtype))
      throw Error(ExitCode::input, "the checkpoint's origin: tensor " + in_quotes(t.name) +
                                       " has type " + in_quotes(dtype) +
                                       "; expected F32, F16 or BF16");
    if (written_.emplace(t.name, Written{t, is_weight_type(dtype) ? dtype : "F32"}).second)
      order_.push_back(t.name);
  }
  void add_copy(const std::string& name) {
    std::string original = architecture_.original_of(name);
    while (!original.empty() && !written_.contains(original))
      original = architecture_.original_of(original);
    if (original.empty()) return;  // of a directory of another type
    ExchangedTensor copy = written_.at(original).tensor;
    copy.name = name;
    add(copy);
  }
  // What the model came with and does not use, from any file of its directory that has it
  // unchanged.
  void keep() {
    std::set<std::string> found;
    std::error_code none;
    for (const auto& e : fs::directory_iterator(origin_.directory, none)) try {
        if (e.path().extension() != ".safetensors") continue;
        const auto& reader =
            kept_.emplace_back(std::make_unique<io::SafetensorsReader>(e.path().string()));
        for (const auto& [theirs, info] : reader->tensors()) {
          const std::string name = architecture_.current_name(theirs);
          const auto wanted = origin_.unused.find(name);
          if (wanted == origin_.unused.end() ||
              io::Checksum::of(reader->bytes(theirs)) != wanted->second ||
              !found.insert(name).second)
            continue;
          add({.name = name});
          written_[name] = {{.name = name, .shape = info.shape}, info.dtype, reader->bytes(theirs)};
        }
      } catch (const Error&) {  // of a file that may have nothing to do with it
      }
    for (const auto& [name, unread] : origin_.unused)
      if (!found.contains(name))
        std::fprintf(stderr,
                     "warning: %s: unused tensor '%s' of the original model is missing and will "
                     "not be exported\n",
                     origin_.directory.c_str(), name.c_str());
  }

  const Architecture& architecture_;
  const Origin& origin_;
  std::map<std::string, Written> written_;
  std::vector<std::string> order_;
  std::vector<std::unique_ptr<io::SafetensorsReader>> kept_;
};

}  // namespace

void write_huggingface(const std::string& dir, const config::ModelConfig& model,
                       const std::optional<tokenizer::SpecialIds>& ids,
                       const std::string& provenance, const std::string& beside,
                       const std::function<std::vector<float>(const std::string& part)>& part) {
  Origin origin(provenance);
  if (std::error_code none; !origin.directory.empty() && !fs::is_directory(origin.directory, none))
    origin.directory = beside;
  const Export whole(model, origin);
  const auto shards = whole.shards();
  fs::create_directories(dir);
  for (const auto& e : fs::directory_iterator(dir))
    if (of_weights(e.path().filename().string())) fs::remove(e.path());

  std::int64_t total = 0;
  Json index;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    char name[64] = "model.safetensors";
    if (shards.size() > 1)
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", s + 1, shards.size());
    std::vector<io::TensorEntry> entries;
    for (const Written& w : shards[s])
      entries.push_back({w.tensor.name, w.dtype, w.tensor.shape}),
          index["weight_map"][w.tensor.name] = name, total += w.bytes();
    io::SafetensorsWriter writer(dir + "/" + name, entries);
    for (const Written& w : shards[s])
      if (w.kept.data())
        writer.write(w.kept);
      else
        write_as(writer, compose(w.tensor, part), w.dtype);
    writer.finish();
  }
  index["metadata"]["total_size"] = total;
  if (shards.size() > 1)
    io::replace_file(dir + "/model.safetensors.index.json", index.dump(2) + "\n");
  io::replace_file(dir + "/config.json", huggingface_config(model, ids, origin.config));
  if (std::error_code none; fs::is_directory(origin.directory, none))
    copy_companions(origin.directory, dir);
}

}  // namespace tfm::huggingface
