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
using Json = nlohmann::json;
constexpr std::size_t kMostJson = 256 << 20;
constexpr std::int64_t kShardBytes = 5'000'000'000;

template <class T>
std::vector<float> decode_as(std::span<const std::byte> bytes) {
  std::vector<T> raw(bytes.size() / sizeof(T));
  std::memcpy(raw.data(), bytes.data(), bytes.size());
  return {raw.begin(), raw.end()};
}
std::vector<float> decode(std::span<const std::byte> bytes, const std::string& dtype) {
  return dtype == "F32"    ? decode_as<float>(bytes)
         : dtype == "BF16" ? decode_as<bf16>(bytes)
                           : decode_as<f16>(bytes);
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
  const std::string config = dir + "/config.json", index = dir + "/model.safetensors.index.json",
                    single = dir + "/model.safetensors";
  model_ = model_of_huggingface(dir);
  const Json config_tree = io::read_json_file(config, kMostJson);
  type_ = config_tree.at("model_type").get<std::string>();
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
                  " is no file name; expected one of this folder, without a path");
      shards[name];
    }
    for (const auto& [name, unused] : shards) open(name);
    for (const auto& [tensor, file] : io::JsonNode(tree, index).at("weight_map").members())
      if (!tensors_.contains(current_name(type_, tensor)))
        file.fail(in_quotes(tensor) + " is in none of the shards");
  }
  decide_heads();
  check(model_);
}

void HuggingFaceModel::open(const std::string& file) {
  files_.push_back(std::make_unique<io::SafetensorsReader>(dir_ + "/" + file));
  for (const auto& [name, info] : files_.back()->tensors())
    if (!tensors_.emplace(current_name(type_, name), Place{files_.size() - 1, name}).second)
      throw Error(ExitCode::input, files_.back()->path() + ": tensor " + in_quotes(name) +
                                       " is in another file too");
}

bool HuggingFaceModel::differ(const std::string& a, const std::string& b) const {
  const auto x = tensors_.find(a), y = tensors_.find(b);
  if (x == tensors_.end() || y == tensors_.end()) return false;
  const io::TensorInfo &s = files_[x->second.file]->info(x->second.name),
                       &t = files_[y->second.file]->info(y->second.name);
  const auto p = files_[x->second.file]->bytes(x->second.name),
             q = files_[y->second.file]->bytes(y->second.name);
  return s.dtype != t.dtype || s.shape != t.shape || p.size() != q.size() ||
         std::memcmp(p.data(), q.data(), p.size()) != 0;
}

// What is tied and which heads there are: by the tensors, not by flags, which versions of the
// format treat differently.
void HuggingFaceModel::decide_heads() {
  using Tie = config::TieEmbeddings;
  const auto present = [&](const char* name, const std::string& otherwise) {
    return tensors_.contains(name) ? std::string(name) : otherwise;
  };
  if (type_ == "gpt2")
    model_.tie_embeddings = differ("lm_head.weight", "transformer.wte.weight") ? Tie::no : Tie::yes;
  if (type_ == "gpt2" && model_.tie_embeddings == Tie::no) model_.head_bias = config::HeadBias::no;
  if (type_ == "llama")
    model_.tie_embeddings =
        differ("lm_head.weight", "model.embed_tokens.weight") ? Tie::no : Tie::yes;
  if (type_ == "bert")
    model_.tie_embeddings =
        differ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight")
            ? Tie::no
            : Tie::yes;
  if (type_ == "bert") model_.next_sentence = tensors_.contains("cls.seq_relationship.weight");
  if (type_ == "t5")
    model_.tie_embeddings = differ("lm_head.weight", "shared.weight") ? Tie::inputs : Tie::all;
  if (type_ != "bart" && type_ != "marian") return;
  const std::string shared = "model.shared.weight",
                    encoder = present("model.encoder.embed_tokens.weight", shared),
                    decoder = present("model.decoder.embed_tokens.weight", shared),
                    output = present("lm_head.weight", decoder);
  const bool inputs = tensors_.contains(shared) && !differ(encoder, decoder),
             target = !differ(decoder, output) && (inputs || type_ == "marian");
  model_.tie_embeddings = inputs   ? (target ? Tie::all : Tie::inputs)
                          : target ? Tie::decoder
                                   : Tie::none;
}

void HuggingFaceModel::check(const config::ModelConfig& model) {
  std::map<std::string, const ExchangedTensor*> known;
  parts_.clear(), unused_.clear();
  const std::vector<ExchangedTensor> expected = exchanged_tensors(model, type_);
  for (const ExchangedTensor& t : expected) {
    known[t.name] = &t;
    const auto found = tensors_.find(t.name);
    if (t.optional && found == tensors_.end()) continue;
    for (std::size_t i = 0; i < t.parts.size(); ++i) parts_[t.parts[i]] = {t, i};
    if (found == tensors_.end())
      throw Error(ExitCode::input, dir_ + ": tensor " + in_quotes(t.name) +
                                       " is missing; expected shape " + shape_text(t.shape));
    const auto& file = *files_[found->second.file];
    const io::TensorInfo& info = file.info(found->second.name);
    if (info.shape != t.shape)
      throw Error(ExitCode::input, file.path() + ": tensor " + in_quotes(t.name) + " is " +
                                       shape_text(info.shape) + "; the configuration needs " +
                                       shape_text(t.shape));
    if (!is_weight_type(info.dtype))
      throw Error(ExitCode::input, file.path() + ": tensor " + in_quotes(t.name) + " is of type " +
                                       info.dtype + "; expected F32, F16 or BF16");
  }
  for (const ExchangedTensor& t : expected)
    if (!parts_.contains(t.parts[0]))
      throw Error(ExitCode::input, dir_ + ": tensor " + in_quotes(t.name) +
                                       " is missing; expected shape " + shape_text(t.shape));
  for (const auto& [name, place] : tensors_) {
    const auto row = known.find(name);
    const bool expected_here = row != known.end(),
               buffer = !expected_here && is_buffer(type_, name);
    if (buffer || (expected_here && differ(name, parts_.at(row->second->parts[0]).first.name)))
      unused_.push_back(name);
    if (buffer || expected_here) continue;
    const std::string original = original_of(type_, name);
    const auto fail = [&](const std::string& what) {
      throw Error(ExitCode::input,
                  files_[place.file]->path() + ": tensor " + in_quotes(place.name) + what);
    };
    if (original.empty())
      fail(" is unknown; a " + type_ + " model of this configuration has none of this name");
    if (differ(name, original))
      fail(" differs from " + in_quotes(original) + ", which it is tied to in a " + type_ +
           " model; expected a copy");
  }
}

std::vector<float> HuggingFaceModel::read(const Place& place) const {
  const auto& file = *files_[place.file];
  return decode(file.bytes(place.name), file.info(place.name).dtype);
}

std::vector<float> HuggingFaceModel::part(const std::string& name) const {
  const auto found = parts_.find(name);
  TFM_CHECK(found != parts_.end(), "no tensor of the directory holds " + name);
  const auto& [tensor, place] = found->second;
  std::vector<float> whole = read(tensors_.at(tensor.name));
  if (tensor.transposed) whole = transposed(whole, tensor.shape[0], tensor.shape[1]);
  if (tensor.parts.size() == 1) return whole;
  const std::size_t n = whole.size() / tensor.parts.size();  // of equal parts
  return {whole.begin() + static_cast<std::ptrdiff_t>(place * n),
          whole.begin() + static_cast<std::ptrdiff_t>((place + 1) * n)};
}

std::string HuggingFaceModel::provenance(const std::string& companions) const {
  Json j;
  j["directory"] = fs::absolute(companions.empty() ? dir_ : companions).string();
  j["config"] = io::read_json_file(dir_ + "/config.json", kMostJson);
  for (const auto& [name, place] : tensors_)
    j["dtypes"][name] = files_[place.file]->info(place.name).dtype;
  j["unused"] = Json::object();
  for (const std::string& name : unused_)
    j["unused"][name] =
        io::Checksum::of(files_[tensors_.at(name).file]->bytes(tensors_.at(name).name));
  return j.dump();
}

void HuggingFaceModel::keep_companions(const std::string& to) const {
  copy_companions(dir_, to);
  fs::remove(to + "/" + kUnused);
  if (unused_.empty()) return;
  std::vector<io::TensorEntry> entries;
  for (const std::string& name : unused_) {
    const Place& place = tensors_.at(name);
    const io::TensorInfo& info = files_[place.file]->info(place.name);
    entries.push_back({name, info.dtype, info.shape});
  }
  io::SafetensorsWriter writer(to + "/" + kUnused, entries);
  for (const std::string& name : unused_)
    writer.write(files_[tensors_.at(name).file]->bytes(tensors_.at(name).name));
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
    const Json tree = provenance.empty() ? Json::object() : Json::parse(provenance);
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
      : type_(huggingface_type(model)), origin_(origin) {
    for (const ExchangedTensor& t : exchanged_tensors(model, type_))
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
                                       " is of type " + in_quotes(dtype) +
                                       "; expected F32, F16 or BF16");
    if (written_.emplace(t.name, Written{t, is_weight_type(dtype) ? dtype : "F32"}).second)
      order_.push_back(t.name);
  }
  void add_copy(const std::string& name) {
    std::string original = original_of(type_, name);
    while (!original.empty() && !written_.contains(original))
      original = original_of(type_, original);
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
          const std::string name = current_name(type_, theirs);
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
                     "warning: %s: tensor '%s', which the model came with and does not use, is not "
                     "there any more\n",
                     origin_.directory.c_str(), name.c_str());
  }

  std::string type_;
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
