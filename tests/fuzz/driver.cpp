// Runs a harness on a corpus and on changed inputs, for compilers that have no libFuzzer. Inputs
// that take steps through instrumented code (coverage.h) no other took join the corpus. The work is
// done in a child process, which may die of an input: the parent has the input in shared memory and
// writes it to a file.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>

#include "coverage.h"
#include "fuzz.h"
#include "mutator.h"

#ifndef __SANITIZE_ADDRESS__
constexpr bool kSanitized = false;
#else
constexpr bool kSanitized = true;
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:quarantine_size_mb=64:malloc_context_size=12";
}
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }
#endif

namespace fs = std::filesystem;
using namespace tfm::fuzz;

namespace {

constexpr const char* kHelp = R"(usage: fuzz-PARSER [options] FILE_OR_DIRECTORY...
Parses every file given (of a directory: every file in it, smallest first), then mutated copies.
  --runs=N         stop after N mutated copies (default 10000)
  --seconds=N      stop after N seconds of CPU time instead
  --seed=N         seed of the mutations (default 1)
  --words=FILE     insert quoted strings of this file, such as a parser's source; may be repeated
  --max-bytes=N    maximum size of a mutated copy (default 4096, or 1.5 times the largest file)
  --limit-ms=N     CPU time limit for one input (default 1000)
  --memory-mb=N    memory limit of the process (default 1024)
  --found=DIR      write inputs that reached new code here; pass this directory to the next run
An input that crashes, hangs, exceeds a limit, or throws anything but tfm::Error is written to fuzz-PARSER-failure-HASH and
ends the run with exit code 1. To reproduce: fuzz-PARSER --runs=0 FILE.
)";

struct Options {
  std::uint64_t runs = 10000, seed = 1;
  double seconds = 0;
  std::size_t max_bytes = 0, limit_ms = 1000, memory_mb = 1024;
  std::string found;
  std::vector<std::string> words, inputs;
};

struct Shared {  // of parent and child
  std::size_t size = 0;
  char reason[128] = {};
  std::uint8_t input[1 << 24];
};

double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
std::size_t peak_mb() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return static_cast<std::size_t>(use.ru_maxrss) / 1024;
}
std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string hash_of(std::string_view bytes) {
  std::uint64_t h = 0xCBF29CE484222325u;
  for (unsigned char c : bytes) h = (h ^ c) * 0x100000001B3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

// The content of all files, smallest first, none twice.
std::vector<std::string> read_all(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path))
      all.push_back(content(path));
    else
      for (const auto& e : fs::recursive_directory_iterator(path))
        if (e.is_regular_file()) all.push_back(content(e.path()));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

class Session {
 public:
  Session(const Options& options, Shared& shared)
      : options_(options), shared_(shared), mutate_(options.seed, options.max_bytes) {}

  void run(const std::vector<std::string>& given) {
    for (const std::string& path : options_.words) mutate_.learn(content(path));
    const double begin = processor_seconds();
    for (const std::string& bytes : given) {
      mutate_.learn(bytes);
      const bool added = try_one(bytes);
      if (!added && bytes.size() <= options_.max_bytes && !coverage) corpus_.push_back(bytes);
    }
    if (corpus_.empty()) corpus_.emplace_back("{}");
    std::uint64_t n = 0;
    double reported = begin;
    for (;
         options_.seconds > 0 ? processor_seconds() - begin < options_.seconds : n < options_.runs;
         ++n) {
      const std::string bytes = mutate_(corpus_);
      if (try_one(bytes) && !options_.found.empty())
        std::ofstream(options_.found + "/" + hash_of(bytes), std::ios::binary) << bytes;
      if (const double now = processor_seconds(); now - reported > 60)
        report(given.size(), n, now - begin), reported = now;
    }
    report(given.size(), n, processor_seconds() - begin);
  }

 private:
  void report(std::size_t given, std::uint64_t runs, double seconds) const {
    std::printf(
        "%zu files and %llu changed inputs in %.1f s of processor time; corpus %zu, places %zu, "
        "slowest %.0f ms, peak %zu MB\n",
        given, static_cast<unsigned long long>(runs), seconds, corpus_.size(), places_,
        slowest_ * 1e3, peak_mb());
    std::fflush(stdout);
  }

  // True where the input has joined the corpus.
  bool try_one(const std::string& bytes) {
    shared_.size = std::min(bytes.size(), sizeof shared_.input);
    std::memcpy(shared_.input, bytes.data(), shared_.size);
    std::memset(reached, 0, sizeof reached);
    const itimerval limit{{},
                          {static_cast<time_t>(options_.limit_ms / 1000),
                           static_cast<suseconds_t>(options_.limit_ms % 1000 * 1000)}},
        none{};
    ::setitimer(ITIMER_PROF, &limit, nullptr);
    ::alarm(60);
    const double begin = processor_seconds();
    {
      const std::vector<std::uint8_t> exact(
          shared_.input, shared_.input + shared_.size);  // reading past its end is seen
      LLVMFuzzerTestOneInput(exact.data(), exact.size());
    }
    slowest_ = std::max(slowest_, processor_seconds() - begin);
    ::setitimer(ITIMER_PROF, &none, nullptr);
    ::alarm(0);
    if (peak_mb() > options_.memory_mb) {
      std::snprintf(shared_.reason, sizeof shared_.reason, "took %zu MB of memory, more than %zu",
                    peak_mb(), options_.memory_mb);
      ::_exit(1);
    }
    if (!is_new() || bytes.size() > options_.max_bytes) return false;
    corpus_.push_back(bytes);
    return true;
  }

  // A step never taken, or taken in another order of magnitude of times.
  bool is_new() {
    bool found = false;
    for (std::size_t block = 0; coverage && block < kPlaces; block += 8) {
      std::uint64_t any;
      std::memcpy(&any, reached + block, 8);
      for (std::size_t i = block; any && i < block + 8; ++i) {
        const std::uint8_t n = reached[i];
        const std::uint8_t level = n == 0    ? 0
                                   : n < 4   ? static_cast<std::uint8_t>(1 << (n - 1))
                                   : n < 8   ? 8
                                   : n < 16  ? 16
                                   : n < 32  ? 32
                                   : n < 128 ? 64
                                             : 128;
        if (level & ~seen_[i]) places_ += seen_[i] == 0, seen_[i] |= level, found = true;
      }
    }
    return found;
  }

  const Options& options_;
  Shared& shared_;
  Mutator mutate_;
  std::vector<std::string> corpus_;
  std::vector<std::uint8_t> seen_ = std::vector<std::uint8_t>(kPlaces);
  std::size_t places_ = 0;
  double slowest_ = 0;
};

Options options_of(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i], name = argument.substr(0, argument.find('=')),
                      value = argument.substr(std::min(name.size() + 1, argument.size()));
    if (!name.starts_with("--")) {
      if (!fs::exists(argument))
        std::fprintf(stderr, "%s: no such file or directory\n", argv[i]), std::exit(2);
      o.inputs.push_back(argument);
    } else if (name == "--help")
      std::fputs(kHelp, stdout), std::exit(0);
    else if (name == "--runs")
      o.runs = std::stoull(value);
    else if (name == "--seconds")
      o.seconds = std::stod(value);
    else if (name == "--seed")
      o.seed = std::stoull(value);
    else if (name == "--words")
      o.words.push_back(value);
    else if (name == "--max-bytes")
      o.max_bytes = std::min(std::stoull(value), 1ull << 24);
    else if (name == "--limit-ms")
      o.limit_ms = std::stoull(value);
    else if (name == "--memory-mb")
      o.memory_mb = std::stoull(value);
    else if (name == "--found")
      fs::create_directories(o.found = value);
    else
      std::fputs(kHelp, stderr), std::exit(2);
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = options_of(argc, argv);
  const std::vector<std::string> given = read_all(options.inputs);
  if (options.max_bytes == 0)
    options.max_bytes =
        std::max<std::size_t>(4096, given.empty() ? 0 : given.back().size() * 3 / 2);
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::perror("mmap"), 1;
  auto& shared = *static_cast<Shared*>(memory);
  const pid_t child = ::fork();
  if (child < 0) return std::perror("fork"), 1;
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (const rlimit limit{options.memory_mb << 20, options.memory_mb << 20}; !kSanitized)
      ::setrlimit(RLIMIT_AS, &limit);
    Session(options, shared).run(given);
    shared.size = 0;
    std::exit(0);  // leaks are looked for here
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  std::error_code ignored;
  fs::remove_all(scratch(child), ignored);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const std::string reason = *shared.reason      ? shared.reason
                             : signal == SIGPROF ? "exceeded the CPU time limit"
                             : signal == SIGALRM ? "hung"
                             : signal            ? std::string("died: ") + strsignal(signal)
                                      : "exit code " + std::to_string(WEXITSTATUS(status));
  const std::string bytes(reinterpret_cast<const char*>(shared.input), shared.size);
  const std::string file = fs::path(argv[0]).filename().string() + "-failure-" + hash_of(bytes);
  std::ofstream(file, std::ios::binary) << bytes;
  std::fprintf(stderr, "%s; reproduce with: %s --runs=0 %s\n", reason.c_str(), argv[0],
               fs::absolute(file).c_str());
  return 1;
}
