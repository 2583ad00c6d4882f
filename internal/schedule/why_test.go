package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/explain"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// TestWhy reads testdata/why/*.txt: the nodes and jobs of a cluster, the verdict of the pending job
// with the highest ID, and the explanation.
func TestWhy(t *testing.T) {
	scenario.Cases(t, "testdata/why/*.txt", func(t *testing.T, text string) string {
		snap := draw(t, text)
		says := lastVerdict(snap)
		x, err := explain.Why(snap, snap.Pending[len(snap.Pending)-1].ID)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(says + "\n" + writeExplanation(x))
	})
}

// lastVerdict gives the jobs of a snapshot their verdicts, and returns that of the last one; "" when
// it starts or is held.
func lastVerdict(snap *cluster.Snapshot) string {
	says := ""
	for _, v := range Decide(snap).Plan.Verdicts {
		for i, j := range snap.Pending {
			if j.ID != v.Job {
				continue
			}
			next := *j
			next.Reason, next.Detail, next.Planned, next.Promise = v.Reason, v.Detail, v.Planned, v.Promise
			snap.Pending[i] = &next
			if says = ""; i == len(snap.Pending)-1 {
				says = "says " + eligible.Obstacle{Reason: v.Reason, Detail: v.Detail}.String()
			}
		}
	}
	return says
}

// writeExplanation writes an explanation.
func writeExplanation(x explain.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "now %s\n%s\n%d nodes, %d could, %d free\n", eligible.Obstacle{Reason: x.Reason, Detail: x.Detail}, x.Needs, x.Nodes, x.Suitable, x.Free)
	for _, cause := range x.Causes {
		fmt.Fprintf(&b, "cause %s\n", cause)
	}
	for _, u := range x.Unmet {
		fmt.Fprintf(&b, "waits for %d, %s: %s\n", u.Job.ID, u.Job.State, u.By)
	}
	if x.UnmetMore > 0 {
		fmt.Fprintf(&b, "and %d more\n", x.UnmetMore)
	}
	for _, k := range x.Exclusions {
		fmt.Fprintf(&b, "%d ruled out: %s\n", k.Nodes, k.Condition)
	}
	for _, h := range x.Holders {
		if h.Nodes > 0 {
			fmt.Fprintf(&b, "job %d has %d of them until +%s\n", h.Job.ID, h.Nodes, h.Ends.Sub(start))
		}
		for _, l := range h.Licences {
			fmt.Fprintf(&b, "job %d has %d of licence %s\n", h.Job.ID, l.Count, l.Name)
		}
	}
	for _, k := range x.Later {
		fmt.Fprintf(&b, "reservation %s keeps %d of them from +%s\n", k.By.Name, k.Nodes, k.By.Start.Sub(start))
	}
	if x.Ahead > 0 {
		fmt.Fprintf(&b, "%d ahead, first %d: %s\n", x.Ahead, x.First[0].Job.ID, x.First[0].Why)
	}
	for _, d := range x.Delays {
		fmt.Fprintf(&b, "at +%s would delay %d: %s\n", x.Alone.Sub(start), d.Job.ID, d.Why)
	}
	for _, c := range x.Changes {
		fmt.Fprintf(&b, "starts with %s\n", c)
	}
	for _, n := range x.Notes {
		fmt.Fprintf(&b, "note %s\n", n)
	}
	return strings.TrimSpace(b.String())
}

// TestWhyProposalsStart makes each proposed change and a pass: the job starts.
func TestWhyProposalsStart(t *testing.T) {
	snap := draw(t, "node a1 gpus=8 cpus=16 mem=64G\nrun 1 on=a1:4 left=1h\njob 10 gpus=8 limit=1h\njob 11 gpus=8 limit=4h")
	x, err := explain.Why(snap, 11)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Changes) != 0 {
		t.Errorf("8 GPUs cannot start whatever its limit, yet: %v", x.Changes)
	}
	snap = draw(t, "node a1 gpus=8 cpus=16 mem=64G\nrun 1 on=a1:4 left=1h\njob 10 gpus=8 limit=1h\njob 11 gpus=4 limit=4h")
	if x, err = explain.Why(snap, 11); err != nil || len(x.Changes) == 0 || !strings.HasPrefix(x.Changes[0], "--time=") {
		t.Fatalf("%+v %v", x, err)
	}
	limit, err := cluster.ParseLimit(strings.TrimPrefix(x.Changes[0], "--time="))
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range snap.Pending {
		if j.ID == 11 {
			other, spec := *j, *j.Spec
			spec.TimeLimit, other.Spec = limit, &spec
			snap.Pending[i] = &other
		}
	}
	starts := Decide(snap).Plan.Starts
	if len(starts) != 1 || starts[0].Job != 11 {
		t.Errorf("with %s it does not start: %v", limit, starts)
	}
}

func TestWhyOfWhatDoesNotWait(t *testing.T) {
	snap := draw(t, "node a1 gpus=8\nrun 1 on=a1:8 left=1h")
	for _, id := range []cluster.JobID{1, 7} {
		if _, err := explain.Why(snap, id); !errors.Is(err, explain.ErrNotPending) {
			t.Errorf("%d: %v", id, err)
		}
	}
}

// TestWhyIsOfNow checks that the last verdict of a job is replaced when other jobs have started
// since.
func TestWhyIsOfNow(t *testing.T) {
	snap := draw(t, "node a1 gpus=8\nrun 1 on=a1:0-7 gpus=8 left=1h limit=2h\njob 10 gpus=4 limit=1h")
	job := *snap.Pending[0]
	job.Reason, job.Detail = cluster.ReasonPriority, "could start now, but would delay jobs ahead of it"
	snap.Pending[0] = &job
	x, err := explain.Why(snap, 10)
	if err != nil || x.Reason != cluster.ReasonResources || x.Detail != "needs 4 GPUs on one node" || len(x.Causes)+len(x.Delays) != 0 {
		t.Errorf("%+v, %v", x, err)
	}
}

// TestWhyAnAttemptFailed checks that verdicts and explanations keep the failure of the last attempt
// while the job waits for its retry.
func TestWhyAnAttemptFailed(t *testing.T) {
	const cause = "attempt 1: node a1: no such image"
	snap := draw(t, "node a1 gpus=8\njob 10 gpus=1 begin=10m")
	job := *snap.Pending[0]
	job.Eligible, job.Restarts, job.Reason, job.Detail = start.Add(10*time.Minute), 1, cluster.ReasonBeginTime, cause
	snap.Pending[0] = &job
	if verdicts := Decide(snap).Plan.Verdicts; len(verdicts) != 0 {
		t.Errorf("the verdicts are %v", verdicts)
	}
	x, err := explain.Why(snap, 10)
	if err != nil || len(x.Causes) == 0 || !strings.HasSuffix(x.Causes[0], "; "+cause) {
		t.Errorf("causes %v, %v", x.Causes, err)
	}
	job.Eligible = start // the retry time has passed
	if verdicts := Decide(snap).Plan.Verdicts; len(verdicts) != 1 || verdicts[0].Detail != "" {
		t.Errorf("later the verdicts are %v", verdicts)
	}
}

// TestWhyNamesTheRestartLimit explains a job that was held after failures of the cluster.
func TestWhyNamesTheRestartLimit(t *testing.T) {
	const detail = "cluster failure 6 exceeds max_restarts = 5; attempt 9: node a1: not responding"
	snap := draw(t, "node a1 gpus=8\njob 10 gpus=1")
	job := *snap.Pending[0]
	job.Hold, job.Reason, job.Detail = cluster.HeldByAdmin, cluster.ReasonRequeueLimit, detail
	job.Restarts, job.Causes = 8, cluster.RestartCauses{NodeFailed: 6, Preempted: 2}
	snap.Pending[0] = &job
	x, err := explain.Why(snap, 10)
	if err != nil || x.Reason != cluster.ReasonRequeueLimit || x.Detail != detail || len(x.Causes) != 0 {
		t.Errorf("%v %q %v, %v", x.Reason, x.Detail, x.Causes, err)
	}
	const note = "restarts so far: node failed 6, preempted 2; an operator releases it with gctl release 10; the limit is max_restarts of the policy"
	if len(x.Notes) != 1 || x.Notes[0] != note {
		t.Errorf("notes %q, want %q", x.Notes, note)
	}
}

// TestWhyWithoutACheckpoint explains a job that is held because its checkpoints are damaged. A pass keeps its
// reason.
func TestWhyWithoutACheckpoint(t *testing.T) {
	const detail = "no checkpoint is left: attempt 2: shard-7: 1 of 3 pieces differ"
	snap := draw(t, "node a1 gpus=8\njob 10 gpus=1")
	job := *snap.Pending[0]
	job.Hold, job.Reason, job.Detail = cluster.HeldByUser, cluster.ReasonCheckpoint, detail
	snap.Pending[0] = &job
	for _, v := range Decide(snap).Plan.Verdicts {
		if v.Reason != cluster.ReasonCheckpoint {
			t.Errorf("a pass decides %s", v.Reason)
		}
	}
	x, err := explain.Why(snap, 10)
	if err != nil || x.Reason != cluster.ReasonCheckpoint || x.Detail != detail || len(x.Notes) != 1 || !strings.HasPrefix(x.Notes[0], "gctl checkpoint list 10 lists them") {
		t.Errorf("%v %q %q, %v", x.Reason, x.Detail, x.Notes, err)
	}
}

// TestWhyOfAQOSThatIsClosed names the QOS that the job may use, and the command that grants the
// present one.
func TestWhyOfAQOSThatIsClosed(t *testing.T) {
	snap := draw(t, "qos high tier=4 closed\nnode a1 gpus=8\njob 10 gpus=1 qos=high")
	if d := Decide(snap); len(d.Plan.Starts) != 0 || len(d.Plan.Verdicts) != 1 || d.Plan.Verdicts[0].Reason != cluster.ReasonInvalidQOS {
		t.Fatalf("a pass decides %s", write(d))
	}
	x, err := explain.Why(snap, 10)
	if err != nil || x.Reason != cluster.ReasonInvalidQOS || len(x.Notes) != 1 || len(x.Changes) != 0 ||
		!strings.HasPrefix(x.Notes[0], "gctl update job 10 qos=NAME moves it to one of standard; an operator can grant it") {
		t.Errorf("%v %q %q %q, %v", x.Reason, x.Detail, x.Notes, x.Changes, err)
	}
}

// TestWhyOfAnAccountThatIsNotAllowed has jobs with one request in two accounts: each gets its own
// reason, and of two partitions the one that allows the account is used.
func TestWhyOfAnAccountThatIsNotAllowed(t *testing.T) {
	snap := draw(t, `partition main accounts=ml,uni
partition open
node a1 gpus=8
job 10 gpus=1 account=uni
job 11 gpus=1 account=bio
job 12 gpus=1 account=bio or=open
job 13 gpus=1
job 14 gpus=1 account=uni or=open`)
	d := Decide(snap)
	var starts []string
	for _, s := range d.Plan.Starts {
		starts = append(starts, s.Job.String()+s.Partition)
	}
	if !slices.Equal(starts, []string{"10main", "12open", "14main"}) {
		t.Errorf("a pass starts %q", starts)
	}
	for _, v := range d.Plan.Verdicts {
		if v.Reason != cluster.ReasonAccountNotAllowed {
			t.Errorf("job %s: %s", v.Job, v.Reason)
		}
	}
	x, err := explain.Why(snap, 11)
	if err != nil || x.Reason != cluster.ReasonAccountNotAllowed || x.Detail != `partition "main" no longer allows account "bio"` ||
		!slices.Equal(x.Notes, []string{"gctl update job 11 account=NAME charges one of ml, uni; partition=NAME moves it"}) {
		t.Errorf("%v %q %q, %v", x.Reason, x.Detail, x.Notes, err)
	}
	if x, err = explain.Why(snap, 13); err != nil || x.Detail != `partition "main" no longer allows jobs without an account` {
		t.Errorf("%q, %v", x.Detail, err)
	}
	if x, err = explain.Why(snap, 12); err != nil || slices.ContainsFunc(x.Notes, func(n string) bool { return strings.Contains(n, "account=NAME") }) {
		t.Errorf("%q, %v", x.Notes, err)
	}
}

// TestWhyNamesABoundedSearch has 640 hosts of one GPU under 64 switches. They give more under 32 of
// these than 192 of three GPUs do, but not on 65 nodes. Trying each set of switches exceeds the
// bound of a search, and the explanation says so.
func TestWhyNamesABoundedSearch(t *testing.T) {
	var b strings.Builder
	leaf := func(kind string, of, hosts, gpus int) {
		for i := range of {
			for h := range hosts {
				fmt.Fprintf(&b, "node %s%d-%d gpus=%d\n", kind, i, h, gpus)
			}
			fmt.Fprintf(&b, "switch %s%d nodes=%s%d-[0-%d]\n", kind, i, kind, i, hosts-1)
		}
	}
	leaf("a", 64, 10, 1)
	leaf("b", 64, 3, 3)
	for _, c := range []struct {
		job     string
		reason  cluster.Reason
		bounded bool
	}{
		{"job 10 nodes=64 total=192 switches=32 late=-1ns", 0, false},
		{"job 10 nodes=65 total=195 switches=32 late=-1ns", cluster.ReasonBadConstraints, true},
		{"job 10 nodes=65 gpus=3 switches=32 late=-1ns", 0, false},
	} {
		snap := draw(t, b.String()+c.job)
		d := Decide(snap)
		if c.reason == 0 {
			if len(d.Plan.Starts) != 1 {
				t.Errorf("%s: %s", c.job, write(d))
			}
			continue
		}
		if len(d.Plan.Verdicts) != 1 || d.Plan.Verdicts[0].Reason != c.reason || !strings.Contains(d.Plan.Verdicts[0].Detail, "is bounded: it may miss a place") {
			t.Errorf("%s: %s", c.job, write(d))
		}
		if x, err := explain.Why(snap, 10); err != nil || !strings.Contains(x.Detail, "is bounded: it may miss a place") {
			t.Errorf("%s: %s, %v", c.job, x.Detail, err)
		}
	}
}
