#include "huggingface/export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/dtype.h"
#include "huggingface/config.h"
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

// Row-major (rows, cols) -> (cols, rows).
std::vector<float> transposed(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  std::vector<float> y(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      y[static_cast<std::size_t>(c * rows + r)] = x[static_cast<std::size_t>(r * cols + c)];
  return y;
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
      : architecture_(architecture_for(model, model_type(provenance.config))),
        provenance_(provenance) {
    for (const ExchangedTensor& t : architecture_.exchanged(model))
      if (!t.optional || !provenance.known || provenance.dtypes.contains(t.name)) add(t);
    for (const auto& [name, unread] : provenance.dtypes)
      if (!written_.contains(name) && !provenance.unused.contains(name)) add_copy(name);
    if (!provenance.unused.empty()) keep();
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
        name, [&](const std::string& tensor) { return written_.contains(tensor); });
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

  const Architecture& architecture_;
  const Provenance& provenance_;
  std::map<std::string, Written> written_;
  std::vector<std::string> order_;
  std::vector<std::unique_ptr<io::SafetensorsReader>> kept_;
};

}  // namespace

std::vector<float> compose(const ExchangedTensor& tensor,
                           const std::function<std::vector<float>(const std::string& part)>& part) {
  std::vector<float> stack;
  for (const std::string& name : tensor.parts) {
    const std::vector<float> values = part(name);
    stack.insert(stack.end(), values.begin(), values.end());
  }
  TFM_CHECK(static_cast<std::int64_t>(stack.size()) == tensor.elements(),
            "parts of " + tensor.name + " do not make its shape");
  return tensor.transposed ? transposed(stack, tensor.shape[1], tensor.shape[0]) : stack;
}

void write_huggingface(const std::string& dir, const config::ModelConfig& model,
                       const std::optional<tokenizer::SpecialIds>& ids,
                       const std::string& provenance, const std::string& beside,
                       const std::function<std::vector<float>(const std::string& part)>& part) {
  Provenance from(provenance);
  if (std::error_code none; !from.directory.empty() && !fs::is_directory(from.directory, none))
    from.directory = beside;
  const Export whole(model, from);
  const auto shards = whole.shards();
  io::create_directories(dir);
  for (const auto& e : fs::directory_iterator(dir))
    if (is_weights_file(e.path().filename().string())) fs::remove(e.path());

  std::int64_t total = 0;
  Json index;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name = shards.size() > 1
                                 ? printed("model-%05zu-of-%05zu.safetensors", s + 1, shards.size())
                                 : "model.safetensors";
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
  io::replace_file(dir + "/config.json", huggingface_config(model, ids, from.config));
  if (std::error_code none; fs::is_directory(from.directory, none))
    copy_sidecars(from.directory, dir);
  update_generation_config(dir, model, from.config);
}

}  // namespace tfm::huggingface
