package server_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/pkg/cluster"
)

// cronWorld is a cluster whose servers' clock can be set forward.
type cronWorld struct {
	*world
	ahead atomic.Int64
}

func newCronWorld(t *testing.T, o options) *cronWorld {
	w := &cronWorld{}
	o.clock = func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
	w.world = newWorld(t, o)
	return w
}

// as returns a client of a user whose token is valid by the servers' clock.
func (w *cronWorld) as(user cluster.Identity) *client.Client {
	w.t.Helper()
	token, err := w.signer.Token(user, time.Now().Add(time.Duration(w.ahead.Load())))
	must(w.t, err)
	return w.client(client.Config{TLS: pki.ClientTLS(w.ca.Trust(), nil), Tokens: tokens{token}}, nil)
}

// set stores a recurring job.
func (w *cronWorld) set(user cluster.Identity, e *greylagv1.CronEntry) error {
	_, err := w.as(user).Jobs().SetCron(w.t.Context(), &greylagv1.SetCronRequest{RequestId: client.NewRequestID(), Entry: e})
	return err
}

// entry returns the only recurring job of ann, whose client c is.
func (w *cronWorld) entry(c *client.Client) *greylagv1.CronEntry {
	w.t.Helper()
	answer, err := c.Jobs().ListCron(w.t.Context(), &greylagv1.ListCronRequest{})
	if must(w.t, err); len(answer.GetEntries()) != 1 {
		w.t.Fatalf("entries: %v", answer)
	}
	return answer.GetEntries()[0]
}

// pass sets the clock forward and waits until the leader has handled the entry of ann.
func (w *cronWorld) pass(d time.Duration) *greylagv1.CronEntry {
	w.t.Helper()
	before := w.entry(w.as(ann))
	w.ahead.Add(int64(d))
	c := w.as(ann)
	var e *greylagv1.CronEntry
	w.until("the recurring job", func() bool {
		e = w.entry(c)
		return e.GetLastTime().AsTime().After(before.GetLastTime().AsTime())
	})
	return e
}

func hourly(name string) *greylagv1.CronEntry {
	return &greylagv1.CronEntry{Name: name, Schedule: "7 * * * *", Job: job("train")}
}

func TestCronSubmitsAJobAtItsTime(t *testing.T) {
	w := newCronWorld(t, options{})
	must(t, w.set(ann, hourly("train")))
	if e := w.entry(w.as(ann)); e.GetNext().AsTime().Minute() != 7 || e.GetLastJob() != 0 || e.GetUser() != "ann" {
		t.Errorf("a new entry: %v", e)
	}
	e := w.pass(5 * time.Hour) // several times, which count as one
	if e.GetLastJob() != 1 || e.GetLastError() != "" || e.GetLastState() != greylagv1.JobState_JOB_STATE_PENDING {
		t.Errorf("after its time: %v", e)
	}
	got, err := w.as(ann).Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: "1"})
	if must(t, err); got.GetJobs()[0].GetUser() != "ann" || got.GetJobs()[0].GetName() != "train" {
		t.Errorf("its job: %v", got)
	}
	if e := w.pass(time.Hour); e.GetLastJob() != 1 || e.GetLastError() != "skipped: job 1 has not ended" {
		t.Errorf("while the last job waits: %v", e)
	}
	_, err = w.as(ann).Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{"1"}}})
	must(t, err)
	if e := w.pass(time.Hour); e.GetLastJob() != 2 || e.GetLastError() != "" {
		t.Errorf("after the last job ended: %v", e)
	}
	run, err := w.as(ann).Jobs().RunCron(t.Context(), &greylagv1.RunCronRequest{RequestId: client.NewRequestID(), Name: "train"})
	if must(t, err); run.GetJob().GetId() != 3 || w.entry(w.as(ann)).GetLastJob() != 3 {
		t.Errorf("run: %v, %v", run, w.entry(w.as(ann)))
	}
}

func TestCronKeepsARefusal(t *testing.T) {
	w := newCronWorld(t, options{filter: filterOf(t, `read -r job
case $job in *'"test_only":true'*) ;; *) echo '{"refuse": "no jobs tonight"}' ;; esac`)})
	must(t, w.set(ann, hourly("train")))
	if e := w.pass(time.Hour); e.GetLastJob() != 0 || e.GetLastError() != "refused by the submission filter of this site: no jobs tonight" {
		t.Errorf("a refused job: %v", e)
	}
}

func TestQueuedCronWaitsForTheLastJob(t *testing.T) {
	w := newCronWorld(t, options{})
	n := newNode(w.world, "n1")
	e := hourly("train")
	e.Overlap = greylagv1.CronOverlap_CRON_OVERLAP_QUEUE
	must(t, w.set(ann, e))
	w.pass(time.Hour)
	n.until(1, func(t *greylagv1.WantedTask) bool { return t != nil })
	if e := w.pass(time.Hour); e.GetLastJob() != 2 || e.GetLastError() != "" {
		t.Fatalf("while the last job runs: %v", e)
	}
	got, err := w.as(ann).Jobs().GetJob(t.Context(), &greylagv1.GetJobRequest{Job: "2"})
	must(t, err)
	if d := got.GetJobs()[0].GetDepends(); len(d) != 1 || d[0].GetJob() != "1" || d[0].GetKind() != greylagv1.DependencyKind_DEPENDENCY_KIND_AFTERANY {
		t.Errorf("the queued job depends on %v", d)
	}
	if e := w.pass(time.Hour); e.GetLastJob() != 2 || e.GetLastError() != "skipped: job 2 has not ended" {
		t.Errorf("while a job is queued: %v", e)
	}
}

func TestCronOfOtherUsers(t *testing.T) {
	w := newCronWorld(t, options{})
	must(t, w.set(ann, hourly("train")))
	update := func(user cluster.Identity, action greylagv1.CronAction) error {
		_, err := w.as(user).Jobs().UpdateCron(t.Context(), &greylagv1.UpdateCronRequest{RequestId: client.NewRequestID(), User: "ann", Names: []string{"train"}, Action: action})
		return err
	}
	list := func(user cluster.Identity, request *greylagv1.ListCronRequest) (names []string, err error) {
		answer, err := w.as(user).Jobs().ListCron(t.Context(), request)
		for _, e := range answer.GetEntries() {
			names = append(names, e.GetName())
		}
		return names, err
	}
	if err := update(bob, greylagv1.CronAction_CRON_ACTION_HOLD); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("bob holds the entry of ann: %v", err)
	}
	for _, request := range []*greylagv1.ListCronRequest{{User: "ann"}, {AllUsers: true}} {
		if _, err := list(bob, request); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("bob lists %v: %v", request, err)
		}
		if names, err := list(olga, request); err != nil || !slices.Equal(names, []string{"train"}) {
			t.Errorf("olga lists %v: %v, %v", request, names, err)
		}
	}
	if _, err := w.as(bob).Jobs().RunCron(t.Context(), &greylagv1.RunCronRequest{Name: "train"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("bob runs the entry of ann: %v", err)
	}
	must(t, update(olga, greylagv1.CronAction_CRON_ACTION_HOLD))
	if e := w.entry(w.as(ann)); !e.GetHeld() || e.GetNext() != nil {
		t.Errorf("a held entry: %v", e)
	}
	must(t, update(ann, greylagv1.CronAction_CRON_ACTION_RELEASE))
	must(t, update(olga, greylagv1.CronAction_CRON_ACTION_REMOVE))
	if names, err := list(ann, &greylagv1.ListCronRequest{}); err != nil || len(names) > 0 {
		t.Errorf("after it was removed: %v, %v", names, err)
	}
}

func TestCronRefusesBadEntries(t *testing.T) {
	w := newCronWorld(t, options{})
	for want, change := range map[string]func(*greylagv1.CronEntry){
		`the schedule "7 * * *" is not valid: expected exactly 5 fields`: func(e *greylagv1.CronEntry) { e.Schedule = "7 * * *" },
		"the schedule \"61 * * * *\" is not valid":                       func(e *greylagv1.CronEntry) { e.Schedule = "61 * * * *" },
		"has no time in the next five years":                             func(e *greylagv1.CronEntry) { e.Schedule = "0 0 30 2 *" },
		"times are less than 1m0s apart":                                 func(e *greylagv1.CronEntry) { e.Schedule = "@every 5s" },
		"the schedule contains a time zone: use --tz ZONE":               func(e *greylagv1.CronEntry) { e.Schedule = "TZ=Asia/Tokyo 0 0 * * *" },
		`unknown time zone "Local"`:                                      func(e *greylagv1.CronEntry) { e.TimeZone = "Local" },
		`unknown time zone "Mars"`:                                       func(e *greylagv1.CronEntry) { e.TimeZone = "Mars" },
		"the script is empty":                                            func(e *greylagv1.CronEntry) { e.Job.Script = nil },
		"a recurring job cannot have a begin time":                       func(e *greylagv1.CronEntry) { e.Job.Begin = timestamppb.Now() },
		"unknown partition":                                              func(e *greylagv1.CronEntry) { e.Job.Partition = "missing" },
		"cannot name a recurring job":                                    func(e *greylagv1.CronEntry) { e.Name = "a/b" },
		"cannot have alternative dependencies": func(e *greylagv1.CronEntry) {
			e.Overlap = greylagv1.CronOverlap_CRON_OVERLAP_QUEUE
			e.Job.Depends = []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK, Job: "1", Any: true}}
		},
	} {
		e := hourly("train")
		change(e)
		if err := w.set(ann, e); err == nil || connect.CodeOf(err) == connect.CodeInternal || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
