#include "huggingface/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/dtype.h"
#include "huggingface/config.h"
#include "huggingface/mxfp4.h"
#include "huggingface/sentence_encoder.h"
#include "huggingface/sidecars.h"
#include "io/json.h"
#include "nn/positions.h"

namespace tfm::huggingface {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMostJson = 256 << 20;

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

// `read` gets a value of the element type.
template <class Read>
void with_weight_type(const std::string& dtype, const Read& read) {
  dtype == "F32" ? read(float{}) : dtype == "BF16" ? read(bf16{}) : read(f16{});
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string s;
  for (std::int64_t d : shape) s += (s.empty() ? "" : ", ") + std::to_string(d);
  return "(" + s + ")";
}

constexpr const char* kUnused = "unused.safetensors";

void refuse_pickles(const std::string& dir) {
  for (const char* file : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (fs::exists(dir + "/" + file) && !fs::exists(dir + "/model.safetensors"))
      throw Error(
          ExitCode::input,
          dir + ": has " + file +
              ", which tfm does not read; expected model.safetensors, which from_pretrained "
              "and save_pretrained of the model's class in a recent transformers write");
}

}  // namespace

HuggingFaceModel::HuggingFaceModel(const std::string& dir) : dir_(dir) {
  const std::string index = dir + "/model.safetensors.index.json",
                    single = dir + "/model.safetensors";
  const Json config_tree = read_config(dir);
  const io::JsonNode config(config_tree, dir + "/config.json");
  architecture_ = &architecture_of(config);
  architecture_->read(config);  // reports errors of config.json before weights are looked for
  const bool whole = fs::exists(single) || !fs::exists(index);
  must_say(config, "transformers_weights",
           whole ? "model.safetensors" : "model.safetensors.index.json");
  if (whole) {
    refuse_pickles(dir);
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
  model_ = model_of(config, [&](const std::string& tensor) {
    return tensors_.contains(tensor) && !is_nothing(tensor);
  });
  if (const auto head = sentence_head(dir)) {
    model_.heads = {*head};
    config::fill_derived(model_, model_.max_seq_len);
  }
  take_tied_names();
  check(model_);
}

void HuggingFaceModel::take_tied_names() {
  for (const std::vector<std::string>& names : architecture_->tied(model_)) {
    const auto stored =
        std::ranges::find_if(names, [&](const auto& name) { return tensors_.contains(name); });
    if (stored == names.begin() || stored == names.end()) continue;
    auto node = tensors_.extract(*stored);
    node.key() = names.front();
    tensors_.insert(std::move(node));
  }
}

void HuggingFaceModel::open(const std::string& file) {
  files_.push_back(std::make_unique<io::SafetensorsReader>(dir_ + "/" + file));
  for (const auto& [name, info] : files_.back()->tensors()) {
    const TensorLocation place{files_.size() - 1, name};
    const auto [other, fresh] = tensors_.emplace(architecture_->current_name(name), place);
    if (!fresh)
      fail(place, " is stored twice, also as " + in_quotes(other->second.name) + " in " +
                      files_[other->second.file]->path());
  }
}

void HuggingFaceModel::fail(const TensorLocation& place, const std::string& problem) const {
  throw Error(ExitCode::input,
              files_[place.file]->path() + ": tensor " + in_quotes(place.name) + problem);
}

bool HuggingFaceModel::could_be_copies(const TensorLocation& a, const TensorLocation& b) const {
  return info(a).dtype == info(b).dtype && info(a).shape == info(b).shape;
}

bool HuggingFaceModel::are_copies(const TensorLocation& a, const TensorLocation& b) const {
  const auto p = bytes(a), q = bytes(b);
  return could_be_copies(a, b) && p.size() == q.size() &&
         (p.data() == q.data() || std::memcmp(p.data(), q.data(), p.size()) == 0);
}

bool HuggingFaceModel::is_nothing(const std::string& name) const {
  return name == architecture_->constant &&
         std::ranges::all_of(bytes(tensors_.at(name)),
                             [](std::byte b) { return b == std::byte{0}; });
}

bool HuggingFaceModel::has_mxfp4(const ExchangedTensor& t) const {
  return t.mxfp4 && !tensors_.contains(t.name) && tensors_.contains(blocks_of(t.name)) &&
         tensors_.contains(scales_of(t.name));
}

void HuggingFaceModel::check_mxfp4(const ExchangedTensor& t) const {
  const std::vector<std::int64_t> scales{t.groups, t.stack_rows(t.cols()),
                                         t.cols() / kScaledTogether};
  std::vector<std::int64_t> blocks = scales;
  blocks.push_back(kScaledTogether / 2);
  for (const auto& [name, shape] :
       {std::pair{blocks_of(t.name), blocks}, {scales_of(t.name), scales}}) {
    const TensorLocation& place = tensors_.at(name);
    const io::TensorInfo& found = info(place);
    if (t.cols() % kScaledTogether != 0 || found.shape != shape)
      fail(place, " is " + shape_text(found.shape) + "; expected " + shape_text(shape));
    if (found.dtype != "U8") fail(place, " has type " + found.dtype + "; expected U8");
  }
}

void HuggingFaceModel::check_tensor(const ExchangedTensor& expected,
                                    const TensorLocation& place) const {
  const io::TensorInfo& found = info(place);
  if (found.shape != expected.shape)
    fail(place, " is " + shape_text(found.shape) + "; expected " + shape_text(expected.shape));
  if (!is_weight_type(found.dtype))
    fail(place, " has type " + found.dtype + "; expected F32, F16 or BF16");
}

void HuggingFaceModel::check_more(const std::string& name, const TensorLocation& place,
                                  const config::ModelConfig& model) {
  if (architecture_->of_another_head(model, name)) return;
  if (architecture_->is_buffer(name) || is_nothing(name)) return buffers_.push_back(name);
  const std::string original = architecture_->original_in(
      model, name, [&](const std::string& tensor) { return tensors_.contains(tensor); });
  if (original.empty())
    fail(place, " is unknown: a " + std::string(architecture_->name) +
                    " model of this configuration has no such tensor" + other_class(model));
  copies_[name] = original;
  if (!could_be_copies(place, tensors_.at(original))) fail_copy(name);
}

void HuggingFaceModel::fail_copy(const std::string& name) const {
  fail(tensors_.at(name), " differs from " + in_quotes(copies_.at(name)) +
                              ", to which it is tied in a " + architecture_->name +
                              " model of this configuration; expected equal values, or "
                              "tie_word_embeddings false in config.json where they are two tables");
}

void HuggingFaceModel::fail_missing(const ExchangedTensor& tensor,
                                    const config::ModelConfig& model) const {
  std::string problem = dir_ + ": tensor " + in_quotes(tensor.name) +
                        " is missing; expected shape " + shape_text(tensor.shape) +
                        ", the model's " + tensor.parts.front();
  for (const std::vector<std::string>& names : architecture_->tied(model))
    if (names.front() == tensor.name)
      for (const std::string& name : names)
        if (name != tensor.name) problem += ", or its copy " + in_quotes(name);
  if (tensor.parts.front() == "head.weight")
    problem += ", as config.json says that it is not tied to the embedding (tie_word_embeddings)";
  for (const char* prefix : {"module.", "_orig_mod."})
    for (const auto& [name, place] : tensors_)
      if (place.name.starts_with(prefix))
        throw Error(ExitCode::input,
                    problem + ". Names in the file begin with '" + prefix +
                        "', which the wrapper of a model adds (DistributedDataParallel, "
                        "torch.compile): save the model that it wraps, or rename the tensors");
  throw Error(ExitCode::input, problem + other_class(model));
}

std::string HuggingFaceModel::other_class(const config::ModelConfig& model) const {
  const Json config = read_config(dir_);
  const auto named = config.find("architectures");
  if (named == config.end() || !named->is_array() || named->empty() || !named->front().is_string())
    return {};
  config::ModelConfig twin = model;  // BERT's two classes
  twin.set_next_sentence(!model.next_sentence());
  const std::string own = architecture_->class_of(model);
  if (named->front() == own || named->front() == architecture_->class_of(twin)) return {};
  return ". The class " + in_quotes(named->front().get<std::string>()) +
         ", which config.json names, is not supported: tfm reads the directory as " + own +
         ". In transformers, " + own +
         ".from_pretrained and save_pretrained make that of it, with initial values for what is "
         "missing";
}

void HuggingFaceModel::check(const config::ModelConfig& model) {
  parts_.clear(), overridden_.clear(), copies_.clear(), buffers_.clear();
  const std::vector<ExchangedTensor> expected = architecture_->exchanged(model);
  std::set<std::string> known;
  for (const ExchangedTensor& t : expected) {
    known.insert(t.name);
    const auto found = tensors_.find(t.name);
    const bool mxfp4 = has_mxfp4(t);
    if (mxfp4) known.insert(blocks_of(t.name)), known.insert(scales_of(t.name));
    if ((t.optional || t.overridden) && found == tensors_.end()) continue;
    for (std::size_t i = 0; i < t.parts.size(); ++i) {
      const auto before = parts_.find(t.parts[i]);
      if (before != parts_.end()) overridden_[before->second.first.name] = t.parts[i];
      parts_[t.parts[i]] = {t, i};
    }
    if (mxfp4)
      check_mxfp4(t);
    else if (found == tensors_.end())
      fail_missing(t, model);
    else
      check_tensor(t, found->second);
  }
  for (const ExchangedTensor& t : expected)
    if (!parts_.contains(t.parts[0]) && !t.may_lack) fail_missing(t, model);
  for (const auto& [name, place] : tensors_)
    if (!known.contains(name)) check_more(name, place, model);
}

void HuggingFaceModel::check_copies() const {
  for (const auto& [name, original] : copies_)
    if (!are_copies(tensors_.at(name), tensors_.at(original))) fail_copy(name);
  for (const std::string& name : buffers_)
    if (architecture_->is_sinusoid(name)) check_sinusoid(name);
}

void HuggingFaceModel::check_sinusoid(const std::string& name) const {
  const TensorLocation& place = tensors_.at(name);
  const std::int64_t length = model_.max_seq_len, width = model_.d_model;
  check_tensor({.name = name, .shape = {length, width}}, place);
  std::vector<float> found(static_cast<std::size_t>(length * width)), computed(found.size());
  with_weight_type(info(place).dtype, [&]<class T>(T) {
    decode_as<T>(bytes(place).data(), sizeof(T), std::ssize(found), found.data(), 1);
  });
  const bool halves = model_.sinusoid == config::Sinusoid::halves;
  nn::sinusoidal_table(length, width,
                       halves ? nn::SinusoidKind::halves : nn::SinusoidKind::interleaved,
                       computed.data());
  // Twice the rounding of values of at most 1; in F32 that of angles of at most `length`.
  const float most = info(place).dtype == "F32"   ? static_cast<float>(length + 1) * 0x1p-22f
                     : info(place).dtype == "F16" ? 0x1p-11f
                                                  : 0x1p-8f;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::abs(found[i] - computed[i]) <= most))
      fail(place, " has " + std::to_string(found[i]) + " at [" +
                      std::to_string(static_cast<std::int64_t>(i) / width) + ", " +
                      std::to_string(static_cast<std::int64_t>(i) % width) +
                      "]; expected the sinusoidal position " + std::to_string(computed[i]) +
                      ", as other tables are not supported here");
}

std::optional<std::int64_t> HuggingFaceModel::elements(const std::string& part) const {
  const auto found = parts_.find(part);
  if (found == parts_.end()) return std::nullopt;
  const auto& [tensor, place] = found->second;
  return tensor.elements(place, place + 1);
}

std::vector<std::string> HuggingFaceModel::parts() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parts_) names.push_back(name);
  return names;
}

void HuggingFaceModel::read(const std::string& part, const PartRange& range, float* out) const {
  const auto found = parts_.find(part);
  TFM_CHECK(found != parts_.end(), "no tensor of the directory holds " + part);
  const auto& [tensor, i] = found->second;
  const std::int64_t cols = range.last_col - range.first_col,
                     rows = range.last_row - range.first_row;
  TFM_CHECK(range.rows * range.cols == tensor.elements(i, i + 1), part + " is of another shape");
  if (has_mxfp4(tensor)) {
    const std::byte *const blocks = bytes(tensors_.at(blocks_of(tensor.name))).data(),
                           *const scales = bytes(tensors_.at(scales_of(tensor.name))).data();
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t row =
          tensor.group_start(i) + tensor.stack_row(i, range.first_row + r, range.cols) * range.cols;
      decode_mxfp4(blocks + row / 2, scales + row / kScaledTogether, range.first_col, cols,
                   out + r * cols);
    }
    return;
  }
  const TensorLocation& file = tensors_.at(tensor.name);
  const std::byte* const data = bytes(file).data();
  const auto decode = [&]<class T>(T) {
    constexpr std::int64_t size = sizeof(T);
    const std::int64_t row_step = tensor.transposed ? 1 : range.cols,
                       column_step = tensor.transposed ? tensor.stack_rows(range.cols) : 1;
    const auto at = [&](std::int64_t r, std::int64_t c) {
      return data + (tensor.group_start(i) +
                     tensor.stack_row(i, range.first_row + r, range.cols) * row_step +
                     (range.first_col + c) * column_step) *
                        size;
    };
    // Reads along the rows of the file.
    const bool even = tensor.turns.empty() || std::ranges::max(tensor.turns) == 1;
    if (tensor.transposed && even)
      for (std::int64_t c = 0; c < cols; ++c)
        decode_as<T>(at(0, c), rows > 1 ? at(1, c) - at(0, c) : size, rows, out + c, cols);
    else
      for (std::int64_t r = 0; r < rows; ++r)
        decode_as<T>(at(r, 0), column_step * size, cols, out + r * cols, 1);
  };
  with_weight_type(info(file).dtype, decode);
}

std::vector<std::string> HuggingFaceModel::unused() const {
  std::vector<std::string> names = buffers_;
  for (const auto& [name, part] : overridden_)
    if (!are_copies(tensors_.at(name), tensors_.at(parts_.at(part).first.name)))
      names.push_back(name);
  std::ranges::sort(names);
  return names;
}

std::string HuggingFaceModel::provenance(const std::string& sidecars) const {
  Json j;
  j["directory"] = fs::absolute(sidecars.empty() ? dir_ : sidecars).string();
  j["config"] = read_config(dir_);
  for (const auto& [name, place] : tensors_) j["dtypes"][name] = info(place).dtype;
  for (const auto& [part, tensor] : parts_)
    if (const std::string& name = tensor.first.name; has_mxfp4(tensor.first)) {
      j["dtypes"].erase(blocks_of(name)), j["dtypes"].erase(scales_of(name));
      j["dtypes"][name] = "BF16";
    }
  j["unused"] = Json::object();
  for (const std::string& name : unused())
    j["unused"][name] = io::Checksum::of(bytes(tensors_.at(name)));
  return j.dump();
}

void HuggingFaceModel::keep_sidecars(const std::string& to) const {
  io::create_directories(to);
  for (const Sidecar& file : sidecars_in(dir_)) {
    io::create_directories(fs::path(to + "/" + file.name).parent_path().string());
    io::copy_file(file.source, to + "/" + file.name);
  }
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

}  // namespace tfm::huggingface
