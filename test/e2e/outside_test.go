package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// login prepares a command on a login node, whose jobs find the programs of this build.
func (s *site) login(program string, args ...string) *exec.Cmd {
	s.t.Helper()
	s.programs()
	cmd := s.Command(limited(s.t, hang), program, args...)
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(s.Work, "bin")+":"+os.Getenv("PATH"))
	return cmd
}

// allocated are the options of a small allocation.
func allocated(args ...string) []string {
	return append([]string{"--qos=" + realQOS, "--mem=32M", "--time=5"}, args...)
}

func sortedLines(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// TestOutsideJobs works with jobs from a login node: the streams go through a controller.
func TestOutsideJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Controllers: 3, Nodes: 2, GPUs: 2, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	t.Run("grun allocates, runs and releases", func(t *testing.T) { outsideRun(s.with(t)) })
	t.Run("39 an allocation with a command of this host", func(t *testing.T) { outsideAlloc(s.with(t)) })
	t.Run("30 a shell in a running job", func(t *testing.T) { outsideShell(s.with(t)) })
	t.Run("the controller that passes on the streams dies", func(t *testing.T) { outsideFailover(s.with(t)) })
	t.Run("grun dies", func(t *testing.T) { outsideKilled(s.with(t)) })
	t.Run("a port of a job", func(t *testing.T) { outsideForward(s.with(t)) })
	t.Run("40 ssh to a node", func(t *testing.T) { outsideSSH(s.with(t)) })
	t.Run("30 39 srun and salloc", func(t *testing.T) { outsideSlurm(s.with(t)) })
	t.Run("38 the variables that Lightning reads", func(t *testing.T) { outsideLightning(s.with(t)) })
	s.idle(limited(t, hang)) // no audit: allocations have no script that records their runs
}

func outsideRun(s *site) {
	r := s.finish(s.login("grun", allocated("-N2", "-n4", "--gpus-per-node=2", "sh", "-c", `echo job $SLURM_JOB_ID >&2; echo $SLURM_PROCID:$SLURM_NODEID:$SLURM_NTASKS:$SLURM_JOB_NUM_NODES; exit 3`)...))
	if r.Exit != 3 || sortedLines(r.Stdout) != "0:0:4:2 1:0:4:2 2:1:4:2 3:1:4:2" {
		s.t.Errorf("%+v", r)
	}
	granted := regexp.MustCompile(`job (\d+)`).FindStringSubmatch(r.Stderr)
	if granted == nil {
		s.t.Fatal(r.Stderr)
	}
	id, err := strconv.ParseUint(granted[1], 10, 64)
	s.must(err)
	j := s.ends(id, "FAILED")
	if j.ExitCode != 3 || len(j.Steps) != 1 {
		s.t.Errorf("%v", j)
	}
	cmd := s.login("grun", allocated("-n1", "cat")...)
	cmd.Stdin = strings.NewReader("hello\n")
	if r := s.finish(cmd); r.Exit != 0 || r.Stdout != "hello\n" {
		s.t.Errorf("%+v", r)
	}
	if r := s.finish(s.login("grun", allocated("-N9", "true")...)); r.Exit == 0 || r.Stdout != "" {
		s.t.Errorf("%+v", r)
	}
}

func outsideAlloc(s *site) {
	r := s.finish(s.login("gctl", append([]string{"alloc"}, allocated("-N2", "sh", "-c", `echo $SLURM_JOB_ID $SLURM_JOB_NUM_NODES; grun hostname | wc -l; exit 4`)...)...))
	var id, nodes, lines uint64
	if _, err := fmt.Sscan(r.Stdout, &id, &nodes, &lines); err != nil || r.Exit != 4 || nodes != 2 || lines != 2 {
		s.t.Fatalf("%v %+v", err, r)
	}
	if j := s.ends(id, "FAILED"); j.ExitCode != 4 || j.Name != "interactive" {
		s.t.Errorf("%v", j)
	}
	cmd := s.login("gctl", append([]string{"alloc"}, allocated()...)...)
	cmd.Stdin = strings.NewReader("echo in job $GREYLAG_JOB_ID on $GREYLAG_NODENAME\n")
	if r := s.finish(cmd); r.Exit != 0 || !strings.HasPrefix(r.Stdout, "in job ") || !strings.Contains(r.Stdout, " on "+s.Nodes()[0].Name) {
		s.t.Errorf("%+v", r)
	}
}

func outsideShell(s *site) {
	id := s.gsubmit(tester, "--nodes=2", "--gpus-per-node=1", "--wrap", "sleep 1000")
	ref := fmt.Sprint(id)
	s.await(limited(s.t, hang), id, "RUNNING")
	last := s.Nodes()[1].Name
	r := s.finish(s.login("gctl", "shell", ref, last, "--", "sh", "-c", `echo $GREYLAG_JOB_ID $GREYLAG_NODENAME $CUDA_VISIBLE_DEVICES; cat /proc/self/cgroup`))
	if r.Exit != 0 || !strings.HasPrefix(r.Stdout, fmt.Sprintf("%d %s 0\n", id, last)) || !strings.Contains(r.Stdout, ref) {
		s.t.Errorf("%+v", r)
	}
	cmd := s.login("gctl", "shell", ref)
	cmd.Stdin = strings.NewReader("exit 9\n")
	if r := s.finish(cmd); r.Exit != 9 {
		s.t.Errorf("%+v", r)
	}
	if r := s.run(alice, "gctl", "shell", ref); r.Exit == 0 || !strings.Contains(r.Stderr, "belongs to") {
		s.t.Errorf("another user's job: %+v", r)
	}
	s.cancel(limited(s.t, hang), id)
	s.ends(id, "CANCELLED")
	if r := s.finish(s.login("gctl", "shell", ref)); r.Exit == 0 || !strings.Contains(r.Stderr, "not RUNNING") {
		s.t.Errorf("%+v", r)
	}
}

// outsideFailover kills every controller once, the leader last, while numbers pass through.
func outsideFailover(s *site) {
	cmd := s.login("grun", allocated("-n2", "-l", "sh", "-c", `i=0; while test $i -lt 2000; do echo $i; i=$((i+1)); case $i in *00) sleep 0.5;; esac; done`)...)
	done := make(chan cluster.Result)
	go func() {
		r, _ := cluster.Finish(cmd) // its status is checked
		done <- r
	}()
	s.until("the step runs", func() (bool, error) {
		r, err := s.Run(limited(s.t, hang), "gqueue", "--json")
		return strings.Contains(r.Stdout, "RUNNING"), err
	})
	leader := s.leader(limited(s.t, hang))
	for _, ctl := range append(s.others(leader), leader) {
		s.must(ctl.Kill())
		s.must(ctl.Start())
		s.leader(limited(s.t, hang))
	}
	r := <-done
	var want strings.Builder
	for rank := range 2 {
		for i := range 2000 {
			fmt.Fprintf(&want, "%d: %d\n", rank, i)
		}
	}
	if r.Exit != 0 || sortedLines(r.Stdout) != sortedLines(want.String()) {
		s.t.Errorf("exit status %d, %d bytes of %d\n%s", r.Exit, len(r.Stdout), want.Len(), r.Stderr)
	}
}

// outsideKilled kills grun: its job ends.
func outsideKilled(s *site) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	cmd := s.login("grun", allocated("-n1", "sh", "-c", "echo $SLURM_JOB_ID >victim; sleep 1000")...)
	s.must(cmd.Start())
	s.until("the program runs", func() (bool, error) { return s.exists("victim"), nil })
	s.must(cmd.Process.Kill())
	_ = cmd.Wait() // killed
	var id uint64
	_, err := fmt.Sscan(s.output("victim"), &id)
	s.must(err)
	s.await(ctx, id, "FAILED", "CANCELLED")
}

func outsideForward(s *site) {
	server := filepath.Join(s.Work, "server.py")
	s.must(os.WriteFile(server, []byte(`import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"x" * 1000000)
    def log_message(self, *a): pass
h = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
open("port", "w").write(str(h.server_port))
h.serve_forever()
`), 0o644))
	id := s.gsubmit(tester, "--wrap", "exec python3 "+server)
	s.until("the server listens", func() (bool, error) { return s.exists("port"), nil })
	cmd := s.login("gctl", "forward", fmt.Sprint(id), "0:"+s.output("port"))
	errs, err := cmd.StderrPipe()
	s.must(err)
	s.must(cmd.Start())
	lines, address := bufio.NewReader(errs), ""
	for address == "" { // notes of repeated calls may come first
		line, err := lines.ReadString('\n')
		s.must(err)
		address = regexp.MustCompile(`http://\S+`).FindString(line)
	}
	for range 3 {
		response, err := http.Get(address)
		s.must(err)
		n, err := io.Copy(io.Discard, response.Body)
		s.must(errors.Join(err, response.Body.Close()))
		if n != 1_000_000 {
			s.t.Errorf("%d bytes", n)
		}
	}
	s.must(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		s.t.Errorf("after Ctrl-C: %v", err)
	}
	s.cancel(limited(s.t, hang), id)
	s.ends(id, "CANCELLED")
	if r := s.finish(s.login("gctl", "forward", fmt.Sprint(id), "8888")); r.Exit == 0 || !strings.Contains(r.Stderr, "not RUNNING") {
		s.t.Errorf("%+v", r)
	}
}

func outsideSSH(s *site) {
	node := "--node=" + s.Nodes()[0].Name
	if r := s.finish(s.login("gctl", "ssh-check", node)); r.Exit == 0 || !strings.Contains(r.Stderr, "you have no running job") {
		s.t.Errorf("%+v", r)
	}
	id := s.gsubmit(tester, "--nodelist="+s.Nodes()[0].Name, "--wrap", "sleep 1000")
	s.await(limited(s.t, hang), id, "RUNNING")
	cmd := s.login("gctl", "ssh-check", node)
	cmd.Env = append(cmd.Env, "SSH_ORIGINAL_COMMAND=echo $GREYLAG_JOB_ID; exit 5")
	if r := s.finish(cmd); r.Exit != 5 || r.Stdout != fmt.Sprintln(id) {
		s.t.Errorf("%+v", r)
	}
	if r := s.finish(s.login("gctl", "ssh-check", "mail", node)); r.Exit != 0 || r.Stdout != "" {
		s.t.Errorf("%+v", r)
	}
	s.cancel(limited(s.t, hang), id)
	s.ends(id, "CANCELLED")
}

func outsideSlurm(s *site) {
	r := s.finish(s.login("gslurm", append([]string{"salloc", "-N2"}, allocated("true")...)...))
	if r.Exit != 0 || r.Stdout != "" || !regexp.MustCompile(`salloc: Granted job allocation \d+\nsalloc: Relinquishing job allocation \d+\n$`).MatchString(r.Stderr) {
		s.t.Errorf("%+v", r)
	}
	r = s.finish(s.login("gslurm", append([]string{"srun", "-N2", "-l"}, allocated("sh", "-c", "echo $SLURM_STEP_ID")...)...))
	if r.Exit != 0 || sortedLines(r.Stdout) != "0: 0 1: 0" {
		s.t.Errorf("%+v", r)
	}
	shell := s.login("gslurm", append([]string{"salloc"}, allocated()...)...)
	shell.Stdin = strings.NewReader("echo $SLURM_JOB_ID $SLURM_STEP_ID; gslurm srun -n1 sh -c 'echo $SLURM_STEP_ID'\n")
	r = s.finish(shell)
	var job, step, inner uint64
	if _, err := fmt.Sscan(r.Stdout, &job, &step, &inner); err != nil || step != 4294967290 || inner != 0 {
		s.t.Errorf("%v %+v", err, r)
	}
	s.equal("sacct", s.slurm("sacct", "-nP", "-j", fmt.Sprint(job), "-o", "JobID,JobName"),
		strings.ReplaceAll("N|interactive\nN.batch|batch\nN.interactive|interactive\nN.0|sh", "N", fmt.Sprint(job)))
	id := s.gsubmit(tester, "--gpus-per-node=1", "--wrap", "sleep 1000")
	s.await(limited(s.t, hang), id, "RUNNING")
	cmd := s.login("gslurm", "srun", "--overlap", fmt.Sprintf("--jobid=%d", id), "--pty", "sh", "-c", "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES")
	if r := s.finish(cmd); r.Exit != 0 || strings.TrimSpace(r.Stdout) != fmt.Sprint(id, " 0") {
		s.t.Errorf("%+v", r)
	}
	s.cancel(limited(s.t, hang), id)
	s.ends(id, "CANCELLED")
	if r := s.finish(s.login("gslurm", append([]string{"srun", "--mpi=pmix"}, allocated("true")...)...)); r.Exit != 1 || !strings.Contains(r.Stderr, "mpirun") {
		s.t.Errorf("%+v", r)
	}
}

// lightning does what Lightning does with the variables: it takes a job with SLURM_NTASKS for one started by
// srun unless its name is bash or interactive, and then wants one task for each of the two GPUs.
const lightning = `case "$SLURM_NTASKS:$SLURM_JOB_NAME" in
:* | *:bash | *:interactive) echo one process;;
*) test "$SLURM_NTASKS_PER_NODE" = 2 && echo rank $SLURM_PROCID of $SLURM_NTASKS || echo refused;;
esac`

func outsideLightning(s *site) {
	script := s.script(s.programs() + lightning)
	id := s.gsubmit(tester, "--gres=gpu:2", "--output=alone.out", script)
	s.ends(id, "COMPLETED")
	s.equal("without srun", s.output("alone.out"), "one process\n")
	under := s.script(s.programs() + "gslurm srun sh -c '" + lightning + "'")
	id = s.gsubmit(tester, "--gres=gpu:2", "--ntasks-per-node=2", "--output=ranks.out", under)
	s.ends(id, "COMPLETED")
	s.equal("with srun", sortedLines(s.output("ranks.out")), "rank 0 of 2 rank 1 of 2")
	cmd := s.login("gslurm", append(append([]string{"srun"}, allocated("--gres=gpu:2", "--pty", "bash")...), "-c", lightning)...)
	r := s.finish(cmd)
	s.equal("in a shell: "+r.Stderr, strings.TrimSpace(r.Stdout), "one process")
}
