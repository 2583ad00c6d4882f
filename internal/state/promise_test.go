package state

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// promised returns a state with a node and a pending job 1 whose promise is to start in an hour.
func promised(t *testing.T) (*script, cluster.Instant) {
	t.Helper()
	x := &script{t: t, s: newState(limits{tail: 20, requests: 10, requestBytes: 1 << 20, levels: 1000}, new(table.Hasher)), now: 1}
	x.apply(&command.Init{ClusterID: "test"})
	for _, line := range []string{"node n1 gpus=8:h100 cpus=64 mem=512", "policy root", "submit ada gpusper=2 time=1h"} {
		x.run(line)
	}
	at := x.now.Add(time.Hour)
	x.say(at, "")
	if j := x.one(); j.Promise == nil || j.Promise.At != at || len(j.History) != 1 || !j.History[0].Promised {
		t.Fatalf("promised at %d: %+v", at, j)
	}
	return x, at
}

// say gives job 1 a verdict: promised for an instant, or with 0 no longer planned.
func (x *script) say(at cluster.Instant, broken string) {
	x.now = x.now.Add(time.Second)
	v := cluster.Verdict{Job: 1, Reason: cluster.ReasonResources, Planned: at, Broken: broken}
	if at > 0 {
		v.Promise = &cluster.Promise{At: at, Partition: "main", Hosts: []cluster.NodeShare{{Node: "n1", GPUs: 2}}}
	}
	x.apply(&command.CommitPlan{Plan: cluster.Plan{Index: x.index, Verdicts: []cluster.Verdict{v}}})
}

func (x *script) one() *cluster.Job {
	j, known := x.s.View().Job(1)
	if !known {
		x.t.Fatal("job 1 is gone")
	}
	return j
}

func TestAPromiseIsNotPutOffWithoutACause(t *testing.T) {
	x, at := promised(t)
	x.say(at.Add(10*time.Minute), "")
	x.say(0, "")
	if j := x.one(); j.Promise == nil || j.Promise.At != at || j.Planned != at || len(j.History) != 1 {
		t.Errorf("without a cause: %+v", j)
	}
	sooner := at.Add(-10 * time.Minute)
	x.say(sooner, "")
	if j := x.one(); j.Promise.At != sooner || len(j.History) != 2 {
		t.Errorf("forward: %+v", j)
	}
	x.say(at, "node n1 is lost")
	j := x.one()
	if j.Promise.At != at || len(j.History) != 3 || j.History[2].Broken != "node n1 is lost" || j.History[2].Index != x.index {
		t.Errorf("with a cause: %+v", j)
	}
}

func TestAPromiseEndsWithWhatItWasMadeFor(t *testing.T) {
	for verb, state := range map[string]cluster.JobState{"hold ada 1": cluster.Pending, "hold op 1": cluster.Pending, "cancel ada 1": cluster.Cancelled} {
		x, _ := promised(t)
		x.run(verb)
		j := x.one()
		if j.Promise != nil || j.State != state || len(j.History) == 0 {
			t.Errorf("%s: %+v", verb, j)
		}
		word, who, _ := strings.Cut(strings.TrimSuffix(verb, " 1"), " ")
		if last := j.History[len(j.History)-1]; word == "hold" && (last.Broken != "held by "+who || last.Promised || last.Index != x.index || last.Reason != j.Reason) {
			t.Errorf("%s: the last note is %+v", verb, last)
		}
	}
}

func TestWhetherAPromiseWasKept(t *testing.T) {
	for _, c := range []struct {
		after  time.Duration // the promised instant
		broken string
	}{{-time.Minute, ""}, {30 * time.Second, ""}, {5 * time.Minute, "it started 5:00 late"}} {
		x, at := promised(t)
		x.now = at.Add(c.after)
		x.run("start 1 n1:0,1")
		j := x.one()
		last := j.History[len(j.History)-1]
		if j.Alloc == nil || j.Promise != nil || !last.Promised || last.Broken != c.broken || last.Planned != x.now {
			t.Errorf("%s after it: %+v", c.after, j)
		}
	}
}

func TestHistoryIsBoundedAndGoesIntoTheRecord(t *testing.T) {
	x, at := promised(t)
	for i := range 40 { // more than is kept
		x.say(at.Add(time.Duration(i)*time.Hour), "node n1 is lost")
	}
	x.run("cancel ada 1")
	record, err := command.DecodeJob(command.EncodeJob(x.one()))
	if err != nil {
		t.Fatal(err)
	}
	if k := len(record.History); k != 16 || record.History[k-1].Broken == "" {
		t.Errorf("%d notes in the record: %+v", k, record.History)
	}
}
