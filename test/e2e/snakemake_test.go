package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm"
	"github.com/greylag/greylag/test/cluster"
)

// slurmNames links the names of Slurm's commands in a directory that jobs see, and returns it.
func (s *site) slurmNames() string {
	s.t.Helper()
	s.programs()
	dir := filepath.Join(s.Work, "bin")
	for _, p := range gslurm.Programs() {
		to := "gslurm"
		if p.Name == "sbatch" {
			to = "gsubmit"
		}
		if err := os.Symlink(to, filepath.Join(dir, p.Name)); err != nil && !os.IsExist(err) {
			s.t.Fatal(err)
		}
	}
	return dir
}

// TestSnakemake runs a workflow with a rule that fails, as Debian's snakemake submits it to
// Slurm (row 37).
func TestSnakemake(t *testing.T) {
	program, err := exec.LookPath("snakemake")
	if err != nil {
		t.Skip("snakemake is not installed")
	}
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 1, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill() + "\n[[partition]]\nname = \"main\"\nnodes = [\"ALL\"]\ndefault = true\n"})
	self, err := user.Current()
	s.must(err)
	_, err = s.client.Accounts().ImportAccounts(limited(t, hang), &greylagv1.ImportAccountsRequest{Toml: fmt.Sprintf(
		"[[account]]\nname = 'lab'\n\n[[user]]\nname = %q\naccount = 'lab'\ndefault = true\n", self.Username)})
	s.must(err)
	dir := s.Work // of the files in /tmp, jobs see those below their working directory
	s.must(os.WriteFile(filepath.Join(dir, "Snakefile"), []byte(`
rule all:
    input: "first.txt", "second.txt", "never.txt"
rule first:
    output: "first.txt"
    shell: "echo $SLURM_JOB_ID >{output}"
rule second:
    input: "first.txt"
    output: "second.txt"
    threads: 2
    shell: "cp {input} {output}"
rule fails:
    output: "never.txt"
    shell: "exit 3"
`), 0o644))
	cmd := exec.CommandContext(limited(t, hang), program, "--slurm", "--jobs", "3", "--keep-going", "--latency-wait", "10",
		"--default-resources", "slurm_account=lab", "slurm_partition=main", "runtime=5", "mem_mb=200")
	cmd.Dir = dir
	cmd.Env = append(s.login("true").Env, "HOME="+s.Work, "USER="+self.Username)
	s.slurmNames()
	r := s.finish(cmd)
	for _, want := range []string{"Error in rule fails", "2 of 4 steps (50%) done"} {
		if !strings.Contains(r.Stdout+r.Stderr, want) {
			t.Errorf("snakemake did not print %q", want)
		}
	}
	if r.Exit != 1 || !s.exists("second.txt") || s.exists("never.txt") {
		t.Errorf("exit status %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
		logs, _ := filepath.Glob(filepath.Join(dir, ".snakemake/slurm_logs/*/*.log")) // the pattern is valid
		for _, path := range logs {
			text, err := os.ReadFile(path)
			t.Logf("%s (%v):\n%s", path, err, text)
		}
	}
	s.idle(limited(t, hang))
}
