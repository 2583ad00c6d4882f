package instances

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

const now = cluster.Instant(1_000_000 * time.Second)

// text writes actions: launches, ended instances, console requests and updates, in order.
func text(a *Actions) string {
	var words []string
	for _, group := range a.Launches {
		words = append(words, fmt.Sprintf("launch %d×%d", group[0].Launch, len(group)))
	}
	for _, u := range a.Updates {
		word := map[command.LeaseEvent]string{command.LeaseStarted: "started", command.LeaseEnded: "ended", command.LeaseReclaimed: "reclaimed", command.LeaseMismatched: "mismatched"}[u.Event]
		words = append(words, strings.TrimSpace(fmt.Sprintf("%s %d %s", word, u.Lease, u.Instance)))
	}
	for _, l := range a.Console {
		words = append(words, "console "+l.Instance)
	}
	for _, id := range a.Terminate {
		words = append(words, "terminate "+id)
	}
	if a.Orphans > 0 {
		words = append(words, fmt.Sprintf("orphans %d", a.Orphans))
	}
	return strings.Join(words, ", ")
}

// lease returns a lease of a launch of two.
func lease(id cluster.LeaseID, state cluster.LeaseState, try uint32, instance string) *cluster.Lease {
	return &cluster.Lease{ID: id, Launch: 1, Nodes: 2, State: state, Try: try, Instance: instance, Since: now, MaxPrice: 4, Offer: cluster.Offer{Type: "p5"}}
}

func instance(id string, try uint32) cluster.Instance {
	return cluster.Instance{ID: id, Launch: 1, Try: try, Launched: now.Add(-time.Minute), Cost: -1}
}

func ended(x cluster.Instance) cluster.Instance {
	x.Terminated = true
	return x
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const planned, requested, launched, terminating = cluster.LeasePlanned, cluster.LeaseRequested, cluster.LeaseLaunched, cluster.LeaseTerminating
	adopted := lease(1, cluster.LeaseDraining, 0, "a")
	adopted.Adopted = true
	priced := instance("a", 1)
	priced.Price = 1
	noticed, old, foreign := instance("a", 1), instance("old", 1), instance("x", 1)
	costly, other := instance("a", 1), instance("a", 1)
	costly.Price, other.Type = 5, "q6"
	noticed.Reclaim, old.Launched, foreign.Launch = now.Add(time.Minute), now.Add(-OrphanAfter), 9
	for _, x := range []struct {
		name      string
		leases    []*cluster.Lease
		instances []cluster.Instance
		want      string // now
		later     string // the same sets, AbsentAfter later
	}{
		{"a planned launch is requested once for all its leases", []*cluster.Lease{lease(1, planned, 0, ""), lease(2, planned, 0, "")}, nil, "launch 1×2", "launch 1×2"},
		{"a request without an answer is repeated", []*cluster.Lease{lease(1, requested, 1, ""), lease(2, requested, 1, "")}, nil, "launch 1×2", "launch 1×2"},
		{
			"the list shows what the lost answer said", []*cluster.Lease{lease(1, requested, 1, ""), lease(2, requested, 1, "")},
			[]cluster.Instance{instance("a", 1), instance("b", 1)}, "started 1 a, started 2 b", "started 1 a, started 2 b",
		},
		{
			"one of two is shown", []*cluster.Lease{lease(1, requested, 1, ""), lease(2, requested, 1, "")},
			[]cluster.Instance{instance("a", 1)}, "launch 1×2, started 1 a", "launch 1×2, started 1 a",
		},
		{"an instance of an earlier try is an orphan", []*cluster.Lease{lease(1, requested, 2, "")}, []cluster.Instance{instance("a", 1)}, "launch 1×1, orphans 1", "launch 1×1, terminate a, orphans 1"},
		{"nothing to do", []*cluster.Lease{lease(1, launched, 1, "a")}, []cluster.Instance{instance("a", 1)}, "", ""},
		{"a new instance is not shown at once", []*cluster.Lease{lease(1, launched, 1, "a")}, nil, "", "ended 1"},
		{"an instance has ended", []*cluster.Lease{lease(1, launched, 1, "a")}, []cluster.Instance{ended(instance("a", 1))}, "ended 1", "ended 1"},
		{"a notice in the list", []*cluster.Lease{lease(1, launched, 1, "a")}, []cluster.Instance{noticed}, "reclaimed 1", "reclaimed 1"},
		{"a price above the highest", []*cluster.Lease{lease(1, launched, 1, "a")}, []cluster.Instance{costly}, "mismatched 1 a", "mismatched 1 a"},
		{"a price above the highest, at the end", []*cluster.Lease{lease(1, terminating, 1, "a")}, []cluster.Instance{costly}, "console a, terminate a", "terminate a"},
		{"another type", []*cluster.Lease{lease(1, launched, 1, "a")}, []cluster.Instance{other}, "mismatched 1 a", "mismatched 1 a"},
		{"an end with the console output", []*cluster.Lease{lease(1, terminating, 1, "a")}, []cluster.Instance{instance("a", 1)}, "console a, terminate a", "terminate a"},
		{"no longer wanted, before an answer", []*cluster.Lease{lease(1, terminating, 1, "")}, nil, "", "ended 1"},
		{"no longer wanted, and there is an instance", []*cluster.Lease{lease(1, terminating, 1, "")}, []cluster.Instance{instance("a", 1)}, "started 1 a", "started 1 a"},
		{"an instance of an unknown launch", nil, []cluster.Instance{foreign}, "orphans 1", "terminate x, orphans 1"},
		{"an old instance without a lease, and a new leader", nil, []cluster.Instance{old}, "terminate old, orphans 1", "terminate old, orphans 1"},
		{"the price of an adopted lease", []*cluster.Lease{adopted}, []cluster.Instance{priced}, "started 1 a", "started 1 a"},
		{"an adopted lease without a price", []*cluster.Lease{adopted}, []cluster.Instance{instance("a", 1)}, "", ""},
		{"a third instance of a launch of two", []*cluster.Lease{lease(1, launched, 1, "a"), lease(2, launched, 1, "b")}, []cluster.Instance{instance("a", 1), instance("b", 1), instance("c", 1)}, "orphans 1", "terminate c, orphans 1"},
	} {
		sets := Sets{Now: now, Leases: x.leases, Instances: x.instances, Absent: map[string]time.Duration{}}
		first := Compare(&sets)
		sets.Now, sets.Elapsed = sets.Now.Add(AbsentAfter), AbsentAfter
		second := Compare(&sets)
		if text(&first) != x.want || text(&second) != x.later {
			t.Errorf("%s: %q, then %q; want %q, then %q", x.name, text(&first), text(&second), x.want, x.later)
		}
	}
}

// TestRestoredState: leases since the backup are unknown, so their instances do not end at once.
func TestRestoredState(t *testing.T) {
	t.Parallel()
	x := instance("a", 1)
	x.Launched = now.Add(-time.Hour)
	sets := Sets{Now: now, Restored: now.Add(-time.Second), Instances: []cluster.Instance{x}, Absent: map[string]time.Duration{}}
	if a := Compare(&sets); text(&a) != "orphans 1" {
		t.Errorf("just restored: %q", text(&a))
	}
	sets.Now, sets.Elapsed = now.Add(RestoredWait), RestoredWait
	if a := Compare(&sets); text(&a) != "terminate a, orphans 1" {
		t.Errorf("an hour later: %q", text(&a))
	}
}

// TestClockStep: a step of the clock does not count as time for which an instance is absent.
func TestClockStep(t *testing.T) {
	t.Parallel()
	sets := Sets{Now: now, Leases: []*cluster.Lease{lease(1, cluster.LeaseRunning, 1, "a")}, Absent: map[string]time.Duration{}}
	for range 2 {
		if a := Compare(&sets); text(&a) != "" {
			t.Errorf("after a step: %q", text(&a))
		}
		sets.Now = now.Add(time.Hour)
	}
	sets.Elapsed = AbsentAfter
	if a := Compare(&sets); text(&a) != "ended 1" {
		t.Errorf("after %s: %q", AbsentAfter, text(&a))
	}
}

// TestRequestInProgress: the instances of a request under way are left alone.
func TestRequestInProgress(t *testing.T) {
	t.Parallel()
	sets := Sets{
		Now: now, Leases: []*cluster.Lease{lease(1, cluster.LeaseRequested, 1, "")}, Instances: []cluster.Instance{instance("a", 1)},
		Requests: map[cluster.LeaseID]struct{}{1: {}}, Absent: map[string]time.Duration{},
	}
	for range 2 {
		if a := Compare(&sets); text(&a) != "" {
			t.Errorf("%q", text(&a))
		}
		sets.Now, sets.Elapsed = sets.Now.Add(time.Hour), sets.Elapsed+time.Hour
	}
}

// BenchmarkCompare compares 1,000 leases with 1,000 instances.
func BenchmarkCompare(b *testing.B) {
	sets := Sets{Now: now, Absent: map[string]time.Duration{}}
	for n := range 1000 {
		id := fmt.Sprintf("i-%04d", n)
		sets.Leases = append(sets.Leases, &cluster.Lease{ID: cluster.LeaseID(n + 1), Launch: cluster.LeaseID(n + 1), Nodes: 1, State: cluster.LeaseRunning, Try: 1, Instance: id})
		sets.Instances = append(sets.Instances, cluster.Instance{ID: id, Launch: cluster.LeaseID(n + 1), Try: 1, Launched: now})
	}
	for b.Loop() {
		Compare(&sets)
	}
}
