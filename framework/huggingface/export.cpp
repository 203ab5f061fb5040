#include "huggingface/export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/dtype.h"
#include "huggingface/config.h"
#include "huggingface/sentence_encoder.h"
#include "huggingface/sidecars.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace tfm::huggingface {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kShardBytes = 5'000'000'000;

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

// A tensor to export: composed of parameter parts, or `kept` unchanged from the original.
struct Written {
  ExchangedTensor tensor;
  std::string dtype = "F32";
  std::span<const std::byte> kept = {};

  std::int64_t bytes() const {
    return kept.data() ? static_cast<std::int64_t>(kept.size())
                       : tensor.elements() * (dtype == "F32" ? 4 : 2);
  }
  std::int64_t element_bytes() const {
    return bytes() / std::max<std::int64_t>(1, tensor.elements());
  }
};

// HuggingFaceModel::provenance as read from a checkpoint, which is untrusted input.
struct Provenance {
  std::string config, directory;
  bool known = false;                         // which tensors there were
  std::map<std::string, std::string> dtypes;  // by name
  std::map<std::string, std::string> unused;  // checksum by name

  explicit Provenance(const std::string& text) {
    const Json tree =
        text.empty() ? Json::object() : io::parse_json(text, "the checkpoint's provenance");
    const io::JsonNode node(tree, "the checkpoint's provenance");
    if (const auto object = node.find("config")) config = object->object();
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
  Export(const config::ModelConfig& model, const Provenance& provenance)
      : model_(model),
        architecture_(architecture_for(model, model_type(provenance.config))),
        provenance_(provenance) {
    for (const ExchangedTensor& t : architecture_.exchanged(model))
      if (provenance.dtypes.contains(t.name) ||
          (!(t.optional && !t.may_lack && provenance.known) && !t.alternative))
        add(t);
    for (const auto& [name, unread] : provenance.dtypes)
      if (!written_.contains(name) && !provenance.unused.contains(name)) add_copy(name);
    if (!provenance.unused.empty()) keep();
  }

  // Makes F16 tensors F32 that hold finite values beyond its range: those that do not `fit`.
  void widen(const std::function<bool(const ExchangedTensor&)>& fits) {
    for (auto& [name, w] : written_)
      if (w.dtype == "F16" && !w.kept.data() && !fits(w.tensor)) {
        w.dtype = "F32";
        std::fprintf(stderr,
                     "warning: tensor '%s' has values beyond the range of F16, its type in the "
                     "original model; it is written as F32\n",
                     name.c_str());
      }
  }
  // Shards of at most kShardBytes. Wider types come first, which keeps every tensor aligned.
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
    const auto type = provenance_.dtypes.find(t.name);
    const std::string dtype = type == provenance_.dtypes.end() ? "F32" : type->second;
    if (!provenance_.unused.contains(t.name) && !is_weight_type(dtype))
      throw Error(ExitCode::input, "the checkpoint's provenance: tensor " + in_quotes(t.name) +
                                       " has type " + in_quotes(dtype) +
                                       "; expected F32, F16 or BF16");
    if (written_.emplace(t.name, Written{t, is_weight_type(dtype) ? dtype : "F32"}).second)
      order_.push_back(t.name);
  }
  void add_copy(const std::string& name) {
    const std::string original = architecture_.original_in(
        model_, name, [&](const std::string& tensor) { return written_.contains(tensor); });
    if (original.empty()) return;  // the original directory has another architecture
    ExchangedTensor copy = written_.at(original).tensor;
    copy.name = name;
    add(copy);
  }
  // Tensors of the original model that tfm does not use, from any file of its directory that has
  // them unchanged.
  void keep() {
    std::set<std::string> found;
    std::error_code none;
    for (const auto& e : fs::directory_iterator(provenance_.directory, none)) try {
        if (e.path().extension() != ".safetensors") continue;
        const auto& reader =
            kept_.emplace_back(std::make_unique<io::SafetensorsReader>(e.path().string()));
        for (const auto& [theirs, info] : reader->tensors()) {
          const std::string name = architecture_.current_name(theirs);
          const auto wanted = provenance_.unused.find(name);
          if (wanted == provenance_.unused.end() ||
              io::Checksum::of(reader->bytes(theirs)) != wanted->second ||
              !found.insert(name).second)
            continue;
          add({.name = name});
          written_[name] = {{.name = name, .shape = info.shape}, info.dtype, reader->bytes(theirs)};
        }
      } catch (const Error&) {  // the file may be unrelated to the model
      }
    for (const auto& [name, unread] : provenance_.unused)
      if (!found.contains(name))
        std::fprintf(stderr,
                     "warning: %s: unused tensor '%s' of the original model is missing and will "
                     "not be exported\n",
                     provenance_.directory.c_str(), name.c_str());
  }

  const config::ModelConfig& model_;
  const Architecture& architecture_;
  const Provenance& provenance_;
  std::map<std::string, Written> written_;
  std::vector<std::string> order_;
  std::vector<std::unique_ptr<io::SafetensorsReader>> kept_;
};

}  // namespace

std::string original_type(const std::string& provenance) {
  return model_type(Provenance(provenance).config);
}

std::vector<float> compose(const ExchangedTensor& tensor,
                           const std::function<std::vector<float>(const std::string& part)>& part) {
  std::vector<float> all(static_cast<std::size_t>(tensor.elements()));
  const std::int64_t cols = tensor.cols(), row_step = tensor.transposed ? 1 : cols,
                     col_step = tensor.transposed ? tensor.stack_rows(cols) : 1;
  for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
    const std::vector<float> values = part(tensor.parts[i]);
    TFM_CHECK(std::ssize(values) == tensor.elements(i, i + 1),
              "parts of " + tensor.name + " do not make its shape");
    const float* from = values.data();
    for (std::int64_t r = 0; r < std::ssize(values) / cols; ++r) {
      float* const to = &all[static_cast<std::size_t>(tensor.group_start(i) +
                                                      tensor.stack_row(i, r, cols) * row_step)];
      for (std::int64_t c = 0; c < cols; ++c) to[c * col_step] = *from++;
    }
  }
  return all;
}

namespace {

// Whether all values of the tensor are finite in fp16, or not in fp32 either.
bool fits_f16(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float v) {
    return !std::isfinite(v) || std::isfinite(static_cast<float>(f16(v)));
  });
}

// The sidecars of an export: of the model that the weights come from, and the run's tokenizer where
// it is another one.
std::vector<Sidecar> sidecars_for(const std::string& base, const std::string& tokenizer,
                                  bool translates) {
  std::vector<Sidecar> files;
  std::error_code none;
  if (!base.empty() && fs::is_directory(base, none)) files = sidecars_in(base);
  if (tokenizer::is_bytes(tokenizer) || (!files.empty() && has_tokenizer(base, tokenizer)))
    return files;
  const std::vector<Sidecar> own = sidecars_of(tokenizer, translates);
  if (own.empty()) {
    if (!fs::is_directory(tokenizer, none))  // else a model's directory that never had one
      std::fprintf(
          stderr, "warning: the run's tokenizer %s is not there%s\n", tokenizer.c_str(),
          files.empty() ? "; the export has none" : ("; the export has that of " + base).c_str());
    return files;
  }
  std::erase_if(files, [&](const Sidecar& f) {
    return is_tokenizer_file(f.name) || std::ranges::count(own, f.name, &Sidecar::name) > 0;
  });
  files.insert(files.end(), own.begin(), own.end());
  return files;
}

// Files that appear together: all are on disk before the first has its name.
class Files {
 public:
  explicit Files(std::string dir) : dir_(std::move(dir)) {}
  bool have(const std::string& name) const { return names_.contains(name); }
  io::SafetensorsWriter& weights(const std::string& name,
                                 const std::vector<io::TensorEntry>& entries) {
    names_.insert(name);
    return *weights_.emplace_back(
        std::make_unique<io::SafetensorsWriter>(dir_ + "/" + name, entries));
  }
  void add(const std::string& name, std::string_view text) {
    names_.insert(name);
    io::create_directories(fs::path(dir_ + "/" + name).parent_path().string());
    others_.emplace_back(std::make_unique<io::AtomicFile>(dir_ + "/" + name))
        ->write(text.data(), text.size());
  }
  void add(const Sidecar& file) {
    std::error_code none;
    if (fs::equivalent(file.source, dir_ + "/" + file.name, none)) {
      names_.insert(file.name);
    } else if (file.source.empty()) {
      add(file.name, file.text);
    } else {
      const io::MappedFile source(file.source);
      add(file.name, {reinterpret_cast<const char*>(source.bytes().data()), source.bytes().size()});
    }
  }
  void sync() {
    for (const auto& file : weights_) file->sync();
    for (const auto& file : others_) file->sync();
  }
  void publish() {
    for (const auto& file : weights_) file->finish();
    for (const auto& file : others_) file->publish();
  }

 private:
  std::string dir_;
  std::set<std::string> names_;
  std::vector<std::unique_ptr<io::SafetensorsWriter>> weights_;
  std::vector<std::unique_ptr<io::AtomicFile>> others_;
};

}  // namespace

void write_huggingface(const std::string& dir, const config::ModelConfig& model,
                       const std::optional<tokenizer::SpecialIds>& ids,
                       const std::string& provenance, const std::string& beside,
                       const std::string& tokenizer,
                       const std::function<std::vector<float>(const std::string& part)>& part) {
  Provenance from(provenance);
  if (std::error_code none; !from.directory.empty() && !fs::is_directory(from.directory, none))
    from.directory = beside;
  const std::string text = huggingface_config(model, ids, from.config);
  const Architecture& architecture = architecture_for(model, model_type(from.config));
  Export whole(model, from);
  whole.widen([&](const ExchangedTensor& t) { return fits_f16(compose(t, part)); });
  const auto shards = whole.shards();
  io::create_directories(dir);
  Files files(dir);
  std::int64_t total = 0;
  Json index;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name = shards.size() > 1
                                 ? printed("model-%05zu-of-%05zu.safetensors", s + 1, shards.size())
                                 : "model.safetensors";
    std::vector<io::TensorEntry> entries;
    for (const Written& w : shards[s]) {
      const std::string tensor = architecture.written_name(model, w.tensor.name);
      entries.push_back({tensor, w.dtype, w.tensor.shape});
      index["weight_map"][tensor] = name;
      total += w.bytes();
    }
    io::SafetensorsWriter& writer = files.weights(name, entries);
    for (const Written& w : shards[s])
      if (w.kept.data())
        writer.write(w.kept);
      else
        write_as(writer, compose(w.tensor, part), w.dtype);
  }
  index["metadata"]["total_size"] = total;
  if (shards.size() > 1) files.add("model.safetensors.index.json", index.dump(2) + "\n");
  for (const Sidecar& file : sidecars_for(from.directory, tokenizer, model.translates()))
    files.add(file);
  for (const Sidecar& file : sentence_files(model))
    if (!files.have(file.name)) files.add(file);
  io::AtomicFile config(dir + "/config.json");
  config.write(text.data(), text.size());
  files.sync(), config.sync();

  // Without a config.json the directory holds no model, until all of the new one is there.
  io::remove_file(dir + "/config.json");
  for (const auto& e : fs::directory_iterator(dir))
    if (const std::string name = e.path().filename().string();
        is_weights_file(name) && !files.have(name))
      io::remove_file(e.path().string());
  files.publish(), config.publish();
  update_generation_config(dir, model, from.config);
  for (const Sidecar& file : sidecars_in(dir))
    if (!files.have(file.name))
      std::fprintf(stderr,
                   "warning: %s was there before and is not of this model; remove it if it "
                   "is of another one\n",
                   file.source.c_str());
}

}  // namespace tfm::huggingface
