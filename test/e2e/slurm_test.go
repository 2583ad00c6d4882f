package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// slurm runs one of Slurm's commands and returns its output without the last line end.
func (s *site) slurm(args ...string) string {
	s.t.Helper()
	return strings.TrimSuffix(s.ok(tester, "gslurm", args...), "\n")
}

// sbatch submits under Slurm's name and returns the ID as sbatch prints it.
func (s *site) sbatch(args ...string) string {
	s.t.Helper()
	return s.slurm(append(append([]string{"sbatch"}, small()...), args...)...)
}

// equal reports a line that differs.
func (s *site) equal(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestSlurmCommands uses Slurm's commands on a real cluster: each of them shows a change as soon as the
// command that made it returned.
func TestSlurmCommands(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 4, CPUs: 16, Memory: "8GiB", Gres: "nvme = 2", Scratch: true, Tmpfs: true, Policy: quickKill()})
	t.Run("sacct shows a job as soon as sbatch returned", func(t *testing.T) { slurmAtOnce(s.with(t)) })
	t.Run("a cancelled array", func(t *testing.T) { slurmArray(s.with(t)) })
	t.Run("an admin comment of an ended job", func(t *testing.T) { slurmAdminComment(s.with(t)) })
	t.Run("generic resources", func(t *testing.T) { slurmGres(s.with(t)) })
	t.Run("scratch space", func(t *testing.T) { slurmScratch(s.with(t)) })
	t.Run("requeue from inside", func(t *testing.T) { slurmRequeue(s.with(t)) })
	s.idle(limited(t, hang))
}

func slurmAtOnce(s *site) {
	id := s.sbatch("-H", "-J", "held", "--wrap", "exit 3")
	s.equal("sacct", s.slurm("sacct", "-nPX", "-j", id, "-o", "JobID,JobName,State"), id+"|held|PENDING")
	s.equal("squeue", s.slurm("squeue", "-h", "-j", id, "-o", "%i %t %r"), id+" PD JobHeldUser")
	s.slurm("scontrol", "release", id)
	n, err := strconv.ParseUint(id, 10, 64)
	s.must(err)
	s.ends(n, "FAILED")
	s.equal("sacct", s.slurm("sacct", "-nP", "-j", id, "-o", "JobID,State,ExitCode"), id+"|FAILED|3:0\n"+id+".batch|FAILED|3:0")
	s.equal("squeue", s.slurm("squeue", "-h", "-t", "all", "-j", id, "-o", "%T"), "FAILED")
	s.equal("squeue", s.slurm("squeue", "-h", "-j", id), "")
	s.equal("scancel", s.slurm("scancel", id), "")
	if show := s.slurm("scontrol", "show", "job", "-o", id); !strings.Contains(show, " JobState=FAILED Reason=NonZeroExitCode ") {
		s.t.Error(show)
	}
	if r := s.run(tester, "gslurm", "squeue", "-j", "999999"); r.Exit != 1 || r.Stdout != "" || r.Stderr != "slurm_load_jobs error: Invalid job id specified\n" {
		s.t.Errorf("unknown job: %+v", r)
	}
	if r := s.run(tester, "gslurm", "sbatch", "--mem=32M", "--gpus-per-node=99", "--wrap", "true"); r.Exit != 1 || r.Stdout != "" {
		s.t.Errorf("refused job: %+v", r)
	}
}

// slurmAdminComment stores a text with an ended job as jobstats does: the archive, which answers about all
// jobs, has it at once.
func slurmAdminComment(s *site) {
	id := s.sbatch("--wrap", "true")
	n, err := strconv.ParseUint(id, 10, 64)
	s.must(err)
	s.ends(n, "COMPLETED")
	s.slurm("sacctmgr", "-i", "update", "job", "where", "jobid="+id, "set", "AdminComment=JS1:H4sI==")
	s.equal("one job", s.slurm("sacct", "-nXP", "-j", id, "-o", "AdminComment"), "JS1:H4sI==")
	if all := s.slurm("sacct", "-naXP", "-S", "now-1hour", "-o", "JobID,AdminComment"); !strings.Contains(all+"\n", id+"|JS1:H4sI==\n") {
		s.t.Error(all)
	}
	if r := s.run(alice, "gslurm", "sacctmgr", "-i", "update", "job", "where", "jobid="+id, "set", "AdminComment=x"); r.Exit != 1 || !strings.Contains(r.Stderr, "requires role operator") {
		s.t.Errorf("another user: %+v", r)
	}
}

func slurmGres(s *site) {
	s.equal("sinfo", s.slurm("sinfo", "-h", "-o", "%G"), "gpu:h100:4,nvme:2,tmp:"+s.slurm("sinfo", "-h", "-o", "%d"))
	first := s.sbatch("--gres=nvme:2", "--wrap", "sleep 300")
	s.until("the first job runs", func() (bool, error) {
		return s.slurm("squeue", "-h", "-j", first, "-o", "%t %b") == "R gres/nvme:2", nil
	})
	if show := s.slurm("scontrol", "show", "node", "-d", "-o"); !strings.Contains(show, " GresUsed=gpu:h100:0(IDX:N/A),nvme:2,tmp:0 ") {
		s.t.Error(show)
	}
	second := s.sbatch("--gres=gpu:1,nvme:1", "--wrap", "true")
	s.until("the second job waits", func() (bool, error) {
		return s.slurm("squeue", "-h", "-j", second, "-o", "%t %r %b") == "PD Resources gres/gpu:1,gres/nvme:1", nil
	})
	s.slurm("scancel", first)
	n, err := strconv.ParseUint(second, 10, 64)
	s.must(err)
	s.ends(n, "COMPLETED")
	if tres := s.slurm("sacct", "-nPX", "-j", second, "-o", "AllocTRES"); !strings.Contains(tres, ",gres/gpu=1,gres/nvme=1,") {
		s.t.Error(tres)
	}
	if r := s.run(tester, "gslurm", "sbatch", "--gres=nvme:3", "--wrap", "true"); r.Exit != 1 || !strings.Contains(r.Stderr, "has 3 nvme (the maximum is 2)") {
		s.t.Errorf("too many: %+v", r)
	}
}

// slurmScratch reserves all scratch space, which steps see too.
func slurmScratch(s *site) {
	all := s.slurm("sinfo", "-h", "-o", "%d")
	body := s.programs() + "touch $TMPDIR/file\ngslurm srun sh -c 'echo $TMPDIR $SLURM_TMPDIR; ls $TMPDIR'\nuntil [ -e scratch-go ]; do sleep 0.05; done\n"
	first := s.sbatch("--tmp="+all, "-o", "scratch-%j", s.script(body))
	second := s.sbatch("--tmp=1M", "-d", "after:"+first, "-o", "scratch-%j", s.script("ls -A $TMPDIR\n"))
	s.until("the second job waits", func() (bool, error) {
		return s.slurm("squeue", "-h", "-j", second, "-o", "%t %r %d") == "PD Resources 1M", nil
	})
	s.until("the step to end", func() (bool, error) {
		return s.exists("scratch-"+first) && strings.HasSuffix(s.output("scratch-%s", first), "file\n"), nil
	})
	fields := strings.Fields(s.output("scratch-%s", first))
	if len(fields) != 3 || fields[0] != fields[1] || !strings.Contains(fields[0], "/scratch/greylag-") || !strings.HasSuffix(fields[0], "-"+first+"-1") {
		s.t.Errorf("the step printed %q", fields)
	}
	s.must(os.WriteFile(filepath.Join(s.Work, "scratch-go"), nil, 0o644))
	n, err := strconv.ParseUint(second, 10, 64)
	s.must(err)
	s.ends(n, "COMPLETED")
	s.equal("files of the second job", s.output("scratch-%s", second), "")
	if _, err := os.Lstat(fields[0]); err == nil {
		s.t.Errorf("%s was not removed", fields[0])
	}
}

func slurmArray(s *site) {
	id := s.sbatch("-H", "-a", "0-3%2", "--wrap", "true")
	s.equal("sacct", s.slurm("sacct", "-nPX", "-j", id, "-o", "JobID,JobIDRaw,State"), id+"_[0-3%2]|"+id+"|PENDING")
	s.equal("squeue", s.slurm("squeue", "-h", "-j", id, "-o", "%i|%K|%F"), id+"_[0-3%2]|0-3%2|"+id)
	s.slurm("scancel", id+"_3")
	s.equal("squeue", s.slurm("squeue", "-h", "-j", id, "-o", "%i"), id+"_[0-2%2]")
	s.slurm("scancel", id)
	if got := s.slurm("sacct", "-nPX", "-j", id, "-o", "State"); got != strings.TrimSpace(strings.Repeat("CANCELLED by 0\n", 4)) {
		s.t.Error(got)
	}
}

func slurmRequeue(s *site) {
	body := s.programs() + "echo restarts ${SLURM_RESTART_COUNT:-0}\nif [ -z \"$SLURM_RESTART_COUNT\" ]; then trap : TERM; gslurm scontrol requeue $SLURM_JOB_ID; echo status $?; fi\n"
	id := s.sbatch("--open-mode=append", "-o", "requeue-%j", s.script(body))
	n, err := strconv.ParseUint(id, 10, 64)
	s.must(err)
	s.ends(n, "COMPLETED")
	out := s.output("requeue-%s", id)
	for _, line := range []string{"restarts 0\n", "status 0\n", "restarts 1\n"} {
		if !strings.Contains(out, line) {
			s.t.Errorf("no %q in %q", line, out)
		}
	}
	s.equal("sacct", s.slurm("sacct", "-nPXD", "-j", id, "-o", "State"), "REQUEUED\nCOMPLETED")
}
