package packages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

const (
	// longestGap bounds the time between two acknowledged submissions during a rolling upgrade.
	longestGap = 3 * time.Second
	// submitters each submit at most submissions jobs with a pause between two. One of realEvery
	// runs; the others are held until the end.
	submitters, submissions, submitPause, realEvery = 4, 1000, 50 * time.Millisecond, 10
)

// programsOf extracts the programs of a repository's packages and returns their directory.
func programsOf(t *testing.T, repository string) string {
	t.Helper()
	dir := publicDir(t)
	packages, err := filepath.Glob(filepath.Join(repositories(t), repository, "deb/pool/main/g/greylag/greylag-*_"+runtime.GOARCH+".deb"))
	if err != nil || len(packages) == 0 {
		t.Fatalf("no packages of the %s version: %v", repository, err)
	}
	for _, file := range packages {
		must(t, "dpkg-deb", "-x", file, dir)
	}
	return filepath.Join(dir, "usr/bin")
}

// publicDir returns a temporary directory that other users can enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "greylag-programs-")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// versionOf returns the version that a directory's programs print.
func versionOf(t *testing.T, programs string) string {
	t.Helper()
	fields := strings.Fields(must(t, filepath.Join(programs, "gctl"), "--version"))
	return fields[len(fields)-1]
}

// rolling is a cluster of processes whose programs are replaced.
type rolling struct {
	*cluster.Cluster
	t       *testing.T
	client  *client.Client
	answers *audit.Answers
	runs    audit.Runs
}

// startRolling starts three controllers and two nodes with the programs in a directory.
func startRolling(t *testing.T, programs string) *rolling {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Controllers: 3, Nodes: 2, CPUs: 8, Memory: "2GiB", Tmpfs: true,
		NodePrefix: fmt.Sprintf("u%dn", os.Getpid()), Programs: programs})
	if errors.Is(err, cluster.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs:\n%s", c.LogTails(4000))
		}
		if err := c.Stop(); err != nil {
			t.Error("stop:", err)
		}
	})
	r := &rolling{Cluster: c, t: t, answers: audit.NewAnswers()}
	r.client, err = c.Client()
	r.must(err)
	t.Cleanup(r.client.Close)
	r.runs, err = audit.NewRuns(c.Work)
	r.must(err)
	return r
}

func (r *rolling) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rolling) until(what string, done func() (bool, error)) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), hang)
	defer cancel()
	r.must(cluster.Until(ctx, what, done))
}

// job returns a small job that records its run.
func (r *rolling) job(name, body string) *greylagv1.JobSpec {
	return &greylagv1.JobSpec{Name: name, Script: r.runs.Script(body), WorkDir: r.Work, Output: "/dev/null",
		Environment: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Request: &greylagv1.Request{CpusPerTask: 1, MemPerNode: 16 << 20}}
}

// get returns a job as it is now.
func (r *rolling) get(id uint64) (*greylagv1.Job, error) {
	answer, err := r.client.Jobs().GetJob(r.t.Context(), &greylagv1.GetJobRequest{Job: fmt.Sprint(id)})
	if err != nil {
		return nil, err
	}
	return answer.Jobs[0], nil
}

// longJob is a job that runs until a file exists.
type longJob struct {
	*rolling
	id            uint64
	gate, process string
}

// startLongJob starts one and finds its process.
func (r *rolling) startLongJob() longJob {
	r.t.Helper()
	j := longJob{rolling: r, gate: filepath.Join(r.Work, "gate")}
	spec := r.job("long", fmt.Sprintf("exec sh -c 'until [ -e %s ]; do sleep 0.1; done; exit 7'", j.gate))
	answer, err := r.client.Jobs().SubmitJobs(r.t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
	r.must(err)
	j.id = answer.Jobs[0].Id
	r.answers.Acknowledged("long", j.id)
	r.until("the long job runs", func() (bool, error) {
		j.process, err = j.find()
		return err == nil, err
	})
	return j
}

func (j longJob) find() (string, error) {
	out, err := exec.Command("pgrep", "-o", "-f", "^sh -c until . -e "+j.gate).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// survives checks that the job runs in its first attempt and process.
func (j longJob) survives(what string) {
	j.t.Helper()
	process, err := j.find()
	if err != nil || process != j.process {
		j.t.Errorf("%s: the process of the long job is %q, want %s: %v", what, process, j.process, err)
	}
	job, err := j.get(j.id)
	if err != nil || job.State != greylagv1.JobState_JOB_STATE_RUNNING || job.Attempt != 1 {
		j.t.Errorf("%s: the long job should run in its first attempt: %v %v", what, job, err)
	}
}

// ends lets the job end and checks its exit status.
func (j longJob) ends() {
	j.t.Helper()
	j.must(os.WriteFile(j.gate, nil, 0o644))
	j.until("the long job ends", func() (bool, error) {
		job, err := j.get(j.id)
		if err != nil || job.State != greylagv1.JobState_JOB_STATE_FAILED {
			return false, errors.Join(err, fmt.Errorf("job %v", job))
		}
		if job.ExitCode != 7 || job.Attempt != 1 {
			j.t.Errorf("the long job ended with %d in attempt %d, want 7 in the first", job.ExitCode, job.Attempt)
		}
		return true, nil
	})
}

// load submits small jobs until the returned function is called, which checks the gaps.
func (r *rolling) load() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- audit.Load{Clients: submitters, Submit: r.client.Jobs(), Answers: r.answers, Pause: submitPause, Limit: submissions,
			Real: realEvery, Job: func(name string) *greylagv1.JobSpec { return r.job(name, "exit 0") }}.Run(ctx)
	}()
	r.until("the load is under way", func() (bool, error) { return r.answers.Count() > 20, nil })
	return func() {
		r.t.Helper()
		select {
		case err := <-ended:
			r.t.Fatal("the load ended before the upgrade: raise submissions: ", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			r.t.Error("load:", err)
		}
		gap := r.answers.LongestGap().Round(time.Millisecond)
		r.t.Logf("%d submissions acknowledged, longest gap %s", r.answers.Count(), gap)
		if gap > longestGap {
			r.t.Errorf("%s between two acknowledged submissions, want at most %s", gap, longestGap)
		}
	}
}

// restart stops a program and starts that in a directory.
func (r *rolling) restart(p *cluster.Process, programs string) {
	r.t.Helper()
	r.must(p.Stop())
	p.UsePrograms(programs)
	r.must(p.Start())
}

// awaitVersion waits until a node has registered with a version.
func (r *rolling) awaitVersion(node *cluster.Node, want string) {
	r.t.Helper()
	r.until(node.Name+" registers", func() (bool, error) {
		info, err := r.NodeInfo(r.t.Context(), node.Name)
		if err != nil {
			return false, err
		}
		return info.Version == want && info.Fault == "", fmt.Errorf("version %s, %s", info.Version, info.Fault)
	})
}

// upgrade replaces the programs of the nodes, then those of the controllers, the leader last.
func (r *rolling) upgrade(programs string, j longJob) {
	r.t.Helper()
	now := versionOf(r.t, programs)
	for _, node := range r.Nodes() {
		r.restart(node.Process, programs)
		r.awaitVersion(node, now)
		j.survives("upgrade of " + node.Name)
	}
	first, err := r.Leader(r.t.Context())
	r.must(err)
	for i := range r.Controllers() {
		ctl := r.Controller((first + 1 + i) % len(r.Controllers()))
		r.restart(ctl.Process, programs)
		r.must(audit.AwaitFollower(r.t.Context(), r.Cluster, ctl))
		j.survives("upgrade of " + ctl.Name)
	}
}

// upgradeCheck runs gctl cluster upgrade-check of a directory's programs, which must report that all daemons
// run one version and are ready for another.
func (r *rolling) upgradeCheck(programs, running, to string) {
	r.t.Helper()
	r.until("upgrade-check", func() (bool, error) {
		command := exec.CommandContext(r.t.Context(), filepath.Join(programs, "gctl"), "cluster", "upgrade-check", to)
		command.Env = append(os.Environ(), "GREYLAG_CONFIG="+r.ConfigFile())
		result, err := cluster.Finish(command)
		done := result.Exit == 0 && strings.Contains(result.Stdout, "ready: ") && strings.Count(result.Stdout, running) == 2
		return done, errors.Join(err, fmt.Errorf("want version %s twice: %+v", running, result))
	})
}

// endAll cancels the held jobs and checks that every acknowledged job ended once.
func (r *rolling) endAll() {
	r.t.Helper()
	ctx := r.t.Context()
	_, err := r.client.Jobs().CancelJobs(ctx, &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(),
		Filter: &greylagv1.Filter{States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}})
	r.must(err)
	r.until("all jobs end", func() (bool, error) {
		answer, err := r.client.Jobs().ListJobs(ctx, &greylagv1.ListJobsRequest{PageSize: 10})
		return err == nil && len(answer.Jobs) == 0, errors.Join(err, fmt.Errorf("%v", answer))
	})
	jobs, unknown := r.answers.Jobs()
	if unknown > 0 {
		r.t.Errorf("%d submissions have no answer", unknown)
	}
	ended := map[string]int{}
	for name, id := range jobs {
		job, err := r.get(id)
		r.must(err)
		ended[wire.Word(job.State)]++
		if job.Ended == nil || job.Attempt > 1 {
			r.t.Errorf("%s, job %d: %s in attempt %d, ended %v", name, id, wire.Word(job.State), job.Attempt, job.Ended)
		}
	}
	r.t.Log("jobs ended as ", ended)
	if ended["FAILED"] != 1 || ended["COMPLETED"]+ended["CANCELLED"]+1 != len(jobs) {
		r.t.Error("want all completed or cancelled, except the long job")
	}
	r.must(audit.Audit{Cluster: r.Cluster, Answers: r.answers, Runs: &r.runs}.Check(ctx))
}

// TestRollingUpgrade replaces the programs of the previous version with those of this one under load:
// the nodes, then the controllers. Then it starts programs of a version two minor versions ahead.
func TestRollingUpgrade(t *testing.T) {
	needs(t, "dpkg-deb", "dh", "rpmbuild", "reprepro", "createrepo_c", "gpg", "containerd", "pgrep", "go")
	previous, current := programsOf(t, "previous"), programsOf(t, "current")
	was, now := versionOf(t, previous), versionOf(t, current)
	r := startRolling(t, previous)
	j := r.startLongJob()
	stop := r.load()
	r.upgradeCheck(previous, was, now)
	r.upgrade(current, j)
	r.upgradeCheck(current, now, now)
	stop()
	r.refusesSkew(current, now, j)
	j.ends()
	r.endAll()
}

// refusesSkew starts a node, then a controller, with programs two minor versions ahead. Both are refused
// and change nothing.
func (r *rolling) refusesSkew(programs, now string, j longJob) {
	r.t.Helper()
	ahead := buildAhead(r.t, programs, now)
	node := r.Node(0)
	r.restart(node.Process, ahead)
	r.until("the node is refused", func() (bool, error) {
		log := node.LogTail(4000)
		return strings.Contains(log, "they are more than one minor version apart"), errors.New(log)
	})
	if after, err := r.NodeInfo(r.t.Context(), node.Name); err != nil || after.Version != now {
		r.t.Errorf("the refused node changed its record: %v, %v", after, err)
	}
	j.survives("refused node")
	r.restart(node.Process, programs)
	r.until("the node registers again", func() (bool, error) {
		log := node.LogTail(4000)
		return strings.Contains(log[max(0, strings.LastIndex(log, "msg=serving")):], `msg="connected to the controllers"`), errors.New(log)
	})

	leader, err := r.Leader(r.t.Context())
	r.must(err)
	ctl := r.Controller((leader + 1) % len(r.Controllers()))
	r.must(ctl.Stop())
	files := hashesBelow(r.t, ctl.Data)
	ctl.UsePrograms(ahead)
	r.must(ctl.Start())
	r.must(ctl.WaitEnd(hang))
	log := ctl.LogTail(4000)
	if code := ctl.ExitCode(); code != 2 || !strings.Contains(log, "more than one minor version apart") || !strings.Contains(log, "nothing was changed") {
		r.t.Errorf("the controller ended with %d:\n%s", code, log)
	}
	if after := hashesBelow(r.t, ctl.Data); after != files {
		r.t.Errorf("the refused controller changed its data:\n%s\nthen:\n%s", files, after)
	}
	ctl.UsePrograms(programs)
	r.must(ctl.Start())
	r.must(audit.AwaitFollower(r.t.Context(), r.Cluster, ctl))
	j.survives("refused controller")
}

// buildAhead builds the daemons as a version two minor versions ahead, into a new directory with links
// to the other programs of a directory, and returns it.
func buildAhead(t *testing.T, programs, now string) string {
	t.Helper()
	var major, minor int
	if _, err := fmt.Sscanf(now, "%d.%d.", &major, &minor); err != nil {
		t.Fatalf("version %q: %v", now, err)
	}
	dir := publicDir(t)
	must(t, "sh", "-c", `cp -s "$0"/* "$1" && rm "$1/gctld" "$1/gnoded"`, programs, dir)
	flags := fmt.Sprintf("-X github.com/greylag/greylag/internal/version.Version=%d.%d.0", major, minor+2)
	must(t, "env", "CGO_ENABLED=0", "go", "build", "-C", top, "-buildvcs=false", "-trimpath", "-ldflags", flags, "-o", dir, "./cmd/gctld", "./cmd/gnoded")
	return dir
}

// hashesBelow returns the name and the hash of each file below a directory.
func hashesBelow(t *testing.T, dir string) string {
	t.Helper()
	return must(t, "sh", "-c", `find "$0" -type f -exec sha256sum {} + | sort -k 2`, dir)
}
