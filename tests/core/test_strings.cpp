#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <map>

#include "core/address.h"
#include "core/error.h"
#include "core/host.h"
#include "core/strings.h"

namespace tfm {
namespace {

TEST(Strings, NearestTakesItsLimitForAllLengths) {
  EXPECT_EQ(nearest("tokenize", {"tokenize-all"}, 3), "");
  EXPECT_EQ(nearest("tokeni", {"tokenizer", "token-list"}, 3), "tokenizer");
  EXPECT_EQ(nearest("tokeni", {"tokenizer"}), "");
  EXPECT_EQ(nearest("tokenize", {"tokenizer"}, 1), "tokenizer");
  EXPECT_EQ(nearest("tokeniz", {"tokenizer"}, 1), "");
  EXPECT_EQ(nearest("lora", {"loss"}), "") << "half of the letters differ";
  EXPECT_EQ(nearest("los", {"loss"}), "loss");
}

TEST(Strings, CountedTakesTheSingularForOneAlone) {
  EXPECT_EQ(counted(0, "rank") + ", " + counted(1u, "node") + ", " + counted(2l, "core"),
            "0 ranks, 1 node, 2 cores");
}

TEST(Strings, WordsForAShellAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(shell_quoted("/a/b_c-1.txt"), "/a/b_c-1.txt");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("-x"), "'-x'");
  EXPECT_EQ(shell_quoted("it's $1"), "'it'\\''s $1'");
}

TEST(Strings, AreCutBetweenCharactersAndSayIt) {
  EXPECT_EQ(shorten("abcd", 4), "abcd");
  EXPECT_EQ(shorten("abcde", 4), "abcd...");
  EXPECT_EQ(shorten("abc\xC3\xA4", 4), "abc\xC3\xA4") << "a character of two bytes stays whole";
  EXPECT_EQ(shorten("abc\xC3\xA4x", 4), "abc\xC3\xA4...");
  EXPECT_EQ(shorten("a\tb\x1F\x7F c"), "a b   c");
  EXPECT_EQ(shorten(""), "");
  EXPECT_EQ(shorten(std::string(61, 'x')), std::string(60, 'x') + "...");
  EXPECT_EQ(quoted("it\n"), "'it '");
  EXPECT_EQ(in_quotes(std::string(96, 'x')), "'" + std::string(96, 'x') + "'");
  EXPECT_EQ(in_quotes(std::string(97, 'x')), "'" + std::string(96, 'x') + "...'");
  EXPECT_EQ(in_quotes("\x1F ~\x7F\xFF"), "'\\x1f ~\\x7f\\xff'");
  EXPECT_EQ(printed("%s", std::string(600, 'x').c_str()), std::string(511, 'x'));
}

TEST(Strings, NumbersAreTheShortestThatReadBack) {
  for (const auto& [x, text] :
       std::vector<std::pair<double, const char*>>{{0, "0"},
                                                   {-3, "-3"},
                                                   {0.1, "0.1"},
                                                   {1e-8, "1e-08"},
                                                   {2.5, "2.5"},
                                                   {65536, "65536"},
                                                   {123456789012345, "123456789012345"},
                                                   {1e15, "1e+15"},
                                                   {-1e300, "-1e+300"}})
    EXPECT_EQ(number_text(x), text);
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Strings, EditsAreInsertionsDeletionsSubstitutionsAndSwaps) {
  for (const auto& [a, b, edits] :
       std::vector<std::tuple<const char*, const char*, int>>{{"", "", 0},
                                                              {"", "abc", 3},
                                                              {"abc", "", 3},
                                                              {"abc", "abc", 0},
                                                              {"abc", "acb", 1},
                                                              {"abcd", "abxd", 1},
                                                              {"abcd", "abd", 1},
                                                              {"kitten", "sitting", 3},
                                                              {"ab", "ba", 1}})
    EXPECT_EQ(edit_distance(a, b), edits) << a << " " << b;
  EXPECT_EQ(nearest("D-Model", {"d_model", "d_head"}), "d_model") << "case and dashes do not count";
  EXPECT_EQ(nearest("lab", {"lb", "la"}), "lb") << "the first of equals";
}

TEST(Strings, EndsAndLists) {
  EXPECT_TRUE(ends_with_any_case("A.TXT", ".txt"));
  EXPECT_TRUE(ends_with_any_case(".txt", ".txt"));
  EXPECT_FALSE(ends_with_any_case("txt", ".txt"));
  EXPECT_FALSE(ends_with_any_case("a.txt.gz", ".txt"));
  EXPECT_EQ(join(std::vector<std::int64_t>{1, -2, 3}), "1, -2, 3");
  EXPECT_EQ(join(std::vector<std::string_view>{}), "");
  EXPECT_EQ(hex_digits(0x0A) + hex_digits(0xF0), "0af0");
}

TEST(Division, RoundsUpOrHasNoRemainder) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(8, 4), 2);
  EXPECT_EQ(ceil_div(9, 4), 3);
  EXPECT_EQ(round_up(8, 4), 8);
  EXPECT_EQ(round_up(9, 4), 12);
  EXPECT_EQ(div_exact(12, 4), 3);
  EXPECT_ANY_THROW(div_exact(13, 4));
}

TEST(Address, HasAHostAndAPort) {
  const auto text = [](std::string_view from) {
    const auto a = address_of(from);
    return a ? a->host + " " + std::to_string(a->port) : "";
  };
  EXPECT_EQ(text("localhost:0"), "localhost 0");
  EXPECT_EQ(text("127.0.0.1:65535"), "127.0.0.1 65535");
  EXPECT_EQ(text("[::1]:9750"), "::1 9750");
  for (const char* bad : {"", ":", "9750", ":9750", "[]:80", "localhost", "localhost:",
                          "localhost:x", "localhost:-1", "localhost:65536", "localhost:123456"})
    EXPECT_EQ(text(bad), "") << bad;
}

// Takes all that launchers set out of the environment; afterwards it is as before.
class LauncherEnvironment : public testing::Test {
 protected:
  LauncherEnvironment() {
    for (const char* name : kNames) {
      if (const char* text = std::getenv(name)) before_[name] = text;
      ::unsetenv(name);
    }
  }
  ~LauncherEnvironment() override {
    for (const char* name : kNames) {
      const auto text = before_.find(name);
      text == before_.end() ? ::unsetenv(name) : ::setenv(name, text->second.c_str(), 1);
    }
  }

 private:
  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_RANK",
                                           "PMIX_RANK",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MV2_COMM_WORLD_SIZE",
                                           "MV2_COMM_WORLD_RANK",
                                           "SLURM_STEP_ID",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_PTY_PORT"};
  std::map<std::string, std::string> before_;
};

TEST_F(LauncherEnvironment, SaysRankAndRanks) {
  struct Case {
    std::map<std::string, std::string> set;
    bool launched;
    int rank, ranks;
  };
  for (const Case& c :
       {Case{{}, false, 0, 1},
        Case{{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "5"}}, true, 3, 5},
        Case{{{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}, true, 2, 4},
        Case{{{"PMIX_RANK", "6"}}, true, 6, 1},
        Case{{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}}, true, 1, 2},
        Case{{{"MV2_COMM_WORLD_RANK", "1"}}, false, 0, 1},
        Case{{{"OMPI_COMM_WORLD_RANK", "3"}}, false, 0, 1},
        Case{{{"OMPI_COMM_WORLD_SIZE", ""}}, false, 0, 1},
        Case{{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}, false, 0, 4},
        Case{{{"SLURM_STEP_NUM_TASKS", "4"}}, false, 0, 1},
        Case{{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PTY_PORT", "9"}},
             false,
             0,
             1},
        Case{{{"PMI_SIZE", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}},
             true,
             0,
             2}}) {
    for (const auto& [name, text] : c.set) ::setenv(name.c_str(), text.c_str(), 1);
    std::string said;
    for (const auto& [name, text] : c.set) said += name + "=" + text + " ";
    EXPECT_EQ(launched_by_mpi(), c.launched) << said;
    EXPECT_EQ(rank_of_launch(), c.rank) << said;
    EXPECT_EQ(ranks_of_launch(), c.ranks) << said;
    for (const auto& [name, text] : c.set) ::unsetenv(name.c_str());
  }
}

TEST(Processes, AStoppedOneIsTold) {
  EXPECT_FALSE(process_stopped(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_TRUE(process_stopped(child));
  ::kill(child, SIGCONT);
  ::waitpid(child, &status, 0);
  EXPECT_FALSE(process_stopped(child)) << "it is gone";
}

TEST(Processes, AMachineIsItsNameAndItsStart) {
  char name[256] = {};
  ::gethostname(name, sizeof name);
  EXPECT_EQ(host_name(), name);
  EXPECT_EQ(boot_id().size(), 36u) << "a UUID";
  EXPECT_EQ(machine_id(), std::string(name) + "/" + boot_id());
}

}  // namespace
}  // namespace tfm
