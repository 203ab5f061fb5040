// A launcher of another MPI, or variables that one left behind.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "core/host.h"
#include "launch/support/foreign_launcher.h"

namespace tfm::launch {
namespace {

using Variables = std::map<std::string, std::string>;

class ForeignLauncher : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  // What is found by `rank` of `ranks` with these variables alone; empty: nothing.
  static std::string found(const Variables& variables, int rank = 0, int ranks = 1) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    const auto foreign = foreign_launcher(launcher_rank(), launcher_ranks(), rank, ranks);
    return foreign ? foreign->found + " -> " + foreign->remedy : "";
  }
  static void expect(const Variables& variables, const std::vector<std::string>& texts) {
    const std::string text = found(variables);
    for (const std::string& t : texts)
      EXPECT_NE(text.find(t), std::string::npos) << t << ": " << text;
  }

 private:
  static void clear() {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
          "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID",
          "SLURM_NTASKS", "SLURM_PROCID", "SLURM_PTY_PORT"})
      ::unsetenv(name);
  }
};

TEST_F(ForeignLauncher, IsFoundByTheNumberOfItsProcesses) {
  expect({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}},
         {"started 3 processes (PMI_SIZE=3)", "1 rank in each", "another MPI", "srun --mpi=pmix"});
  expect({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
         {"OMPI_COMM_WORLD_SIZE=2", "unset OMPI_COMM_WORLD_SIZE"});
  expect({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}}, {"MV2_COMM_WORLD_SIZE=2"});
  expect({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}, {"SLURM_STEP_NUM_TASKS=4"});
}

TEST_F(ForeignLauncher, IsFoundByTheRank) {
  expect({{"PMI_RANK", "3"}}, {"another rank (PMI_RANK=3)", "rank 0 of 1", "unset PMI_RANK"});
  expect({{"PMIX_RANK", "1"}}, {"PMIX_RANK=1"});
  EXPECT_NE(found({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}, 1, 4), "");
}

TEST_F(ForeignLauncher, IsWhatGarbageIsTakenFor) {
  expect({{"PMI_SIZE", "abc"}}, {"PMI_SIZE=abc", "unset PMI_SIZE"});
  expect({{"PMI_RANK", "1x"}, {"PMI_SIZE", "1"}}, {"PMI_RANK=1x"});
  expect({{"PMI_RANK", "-1"}}, {"PMI_RANK=-1"});
  expect({{"OMPI_COMM_WORLD_SIZE", "99999999999999999999"}}, {"OMPI_COMM_WORLD_SIZE=9999"});
}

TEST_F(ForeignLauncher, IsNotFoundWhereAllAgree) {
  EXPECT_EQ(found({}), "");
  EXPECT_EQ(found({{"PMI_SIZE", ""}}), "") << "emptied, as good as unset";
  EXPECT_EQ(found({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}, 2, 4), "");
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(found({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), "");
  EXPECT_EQ(
      found({{"PMIX_RANK", "3"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 3, 4), "");
  EXPECT_EQ(found({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), "") << "a batch script, salloc";
  EXPECT_EQ(found({{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}}), "")
      << "salloc with an interactive step";
  EXPECT_EQ(found({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PTY_PORT", "9"}}),
            "")
      << "srun -n 8 --pty bash";
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "2"},
                   {"PMI_SIZE", "8"},
                   {"PMI_RANK", "5"}},
                  1, 2),
            "")
      << "mpirun inside of a task of srun";
}

}  // namespace
}  // namespace tfm::launch
