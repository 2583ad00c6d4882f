package limits

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/pkg/cluster"
)

// by returns a caller with a role that makes a call.
func by(user string, role command.Role, rpc procedure.Name) *call.Caller {
	c := &call.Caller{RPC: procedure.Of(rpc)}
	c.User.Identity, c.Role = cluster.Identity{User: user}, role
	return c
}

// admitted returns how many of n calls at one instant are admitted. The others get the time of a retry.
func admitted(t *testing.T, l *Limits, c *call.Caller, n int, at time.Time) (in int) {
	t.Helper()
	for range n {
		err := l.Admit(c, at)
		if err == nil {
			in++
		} else if !errors.Is(err, ErrTooOften) || RetryAfter(err) <= 0 {
			t.Fatalf("refused without the time of a retry: %v", err)
		}
	}
	return in
}

// TestJobsAreLimitedAsTheirOwners: a call from inside a job counts as its owner's, not as its node's.
func TestJobsAreLimitedAsTheirOwners(t *testing.T) {
	l := New(Config{Rate: 10, Burst: 20})
	now := time.Unix(1_800_000_000, 0)
	inside := by("ann", command.RoleUser, "JobService/GetJob")
	inside.Machine, inside.Attempt = pki.Peer{Role: pki.RoleNode, Name: "n1"}, &auth.Attempt{Job: 12, Number: 1}
	if n := admitted(t, l, inside, 15, now); n != 15 {
		t.Errorf("%d of 15 were admitted", n)
	}
	if n := admitted(t, l, by("ann", command.RoleUser, "JobService/GetJob"), 15, now); n != 5 {
		t.Errorf("%d of 15 were admitted after 15 from inside a job, want 5", n)
	}
}

// TestLargeArrayDelaysTheNextCallBriefly takes an array of 100,000 elements.
func TestLargeArrayDelaysTheNextCallBriefly(t *testing.T) {
	l := New(Config{Rate: 500, Burst: 2000})
	now := time.Unix(1_800_000_000, 0)
	ann := by("ann", command.RoleUser, "JobService/SubmitJobs")
	admitted(t, l, ann, 1, now)
	l.CountJobs(ann, 100_000, now)
	if n := admitted(t, l, ann, 1, now.Add(500*time.Millisecond)); n != 0 {
		t.Error("the array cost its user nothing")
	}
	if n := admitted(t, l, ann, 1, now.Add(1100*time.Millisecond)); n != 1 {
		t.Error("the next call is still refused after 1.1 s")
	}
}

// TestTenASecond is 25 submissions at once where 20 are allowed and 10 a second.
func TestTenASecond(t *testing.T) {
	l := New(Config{Rate: 10, Burst: 20})
	now := time.Unix(1_800_000_000, 0)
	ann := by("ann", command.RoleUser, "JobService/SubmitJobs")
	if n := admitted(t, l, ann, 25, now); n != 20 {
		t.Errorf("%d of 25 at once, want 20", n)
	}
	for who, c := range map[string]*call.Caller{
		"another user": by("bob", command.RoleUser, "JobService/SubmitJobs"), "an operator": by("olga", command.RoleOperator, "JobService/SubmitJobs"),
	} {
		if n := admitted(t, l, c, 20, now); n != 20 {
			t.Errorf("%s: %d of 20", who, n)
		}
	}
	node := &call.Caller{RPC: procedure.Of("NodeService/ReportTasks")} // which brings heartbeats, and the ends that are settled
	node.Machine = pki.Peer{ClusterID: "c", Role: pki.RoleNode, Name: "n1"}
	if n := admitted(t, l, node, 10_000, now); n != 10_000 {
		t.Errorf("a node: %d of 10,000", n)
	}
	for _, x := range []struct {
		after time.Duration
		want  int
	}{{99 * time.Millisecond, 0}, {100 * time.Millisecond, 1}, {time.Second, 9}, {time.Hour, 20}} {
		if n := admitted(t, l, ann, 100, now.Add(x.after)); n != x.want {
			t.Errorf("%v later %d are admitted, want %d", x.after, n, x.want)
		}
	}
}

// TestCostsOfCalls checks that an expensive call counts for more, and that no call is refused
// permanently.
func TestCostsOfCalls(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, x := range []struct {
		rpc  procedure.Name
		jobs int
		want int // plain calls that are admitted after it
	}{
		{"ClusterService/GetStatus", 1, 19}, {"ClusterService/ExplainJob", 1, 10}, {"CreditService/StreamStatement", 1, 0}, {"ReportService/GetCapacity", 1, 0},
		{"JobService/SubmitJobs", 101, 9}, {"JobService/SubmitJobs", 100_001, 0},
	} {
		l := New(Config{Rate: 10, Burst: 20})
		c := by("ann", command.RoleUser, x.rpc)
		if n := admitted(t, l, c, 1, now); n != 1 {
			t.Errorf("%s is not admitted", x.rpc)
		}
		l.CountJobs(c, x.jobs, now)
		if n := admitted(t, l, by("ann", command.RoleUser, "ClusterService/GetStatus"), 100, now); n != x.want {
			t.Errorf("after %s with %d jobs %d are admitted, want %d", x.rpc, x.jobs, n, x.want)
		}
		if n := admitted(t, l, c, 1, now.Add(1000*time.Second)); n != 1 {
			t.Errorf("%s with %d jobs is refused permanently", x.rpc, x.jobs)
		}
	}
	l := New(Config{Rate: 10, Burst: 20})
	root := by("root", command.RoleAdmin, "JobService/SubmitJobs")
	if l.CountJobs(root, 1_000_000, now); l.Admit(root, now) != nil {
		t.Error("an administrator is limited")
	}
}

// TestManyCallers makes calls of more callers than are remembered. Those that used nothing lately are
// forgotten first, and a caller with a debt keeps it until all have to be forgotten.
func TestManyCallers(t *testing.T) {
	l := New(Config{Rate: 10, Burst: 20})
	now := time.Unix(1_800_000_000, 0)
	status := func(i int) *call.Caller {
		return by(fmt.Sprint("user", i), command.RoleUser, "ClusterService/GetStatus")
	}
	for i := range maxLimiters - 1 {
		admitted(t, l, status(i), 1, now)
	}
	now = now.Add(time.Second) // all are as if they were new
	ann := by("ann", command.RoleUser, "ClusterService/GetStatus")
	admitted(t, l, ann, 20, now)
	admitted(t, l, status(maxLimiters), 1, now)
	if len(l.limiters) != 2 || admitted(t, l, ann, 1, now) != 0 {
		t.Errorf("%d callers are remembered, and ann's calls are forgotten or more than two are left", len(l.limiters))
	}
	for i := range 3 * maxLimiters {
		if admitted(t, l, status(i), 1, now); len(l.limiters) > maxLimiters {
			t.Fatalf("%d callers are remembered", len(l.limiters))
		}
	}
}
