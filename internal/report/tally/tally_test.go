package tally

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// minute returns n minutes after a half hour.
func minute(n int) cluster.Instant {
	return cluster.Instant(1_800_000_000_000_000_000/int64(Slot)*int64(Slot)) + cluster.Instant(n)*cluster.Instant(time.Minute)
}

func trained() *cluster.Job {
	tres := []cluster.Amount{{Resource: "cpu", Count: 4}, {Resource: "gpu", Count: 3}, {Resource: "gpu:a100", Count: 1}, {Resource: "gpu:h100", Count: 2}, {Resource: "mem", Count: 100}, {Resource: "node", Count: 1}}
	return &cluster.Job{
		State: cluster.Preempted, Submitted: minute(0), Started: minute(50), Ended: minute(100), Partition: "main", TRES: tres, Charged: 9,
		Tasks: cluster.NewTasks(cluster.Task{CPUTime: time.Minute, Memory: 50 << 20, GPU: cluster.GPUUse{BusyMs: 40, KnownMs: 100}}, cluster.Task{GPU: cluster.GPUUse{BusyMs: 5, KnownMs: 50}}), Spec: &cluster.JobSpec{Account: "a", Owner: cluster.Identity{User: "u"}, QOS: "q", Partition: "main,big"},
		Attempts: []cluster.AttemptRecord{{Partition: "big", Started: minute(10), Ended: minute(20), Outcome: cluster.NodeFailed, TRES: tres, GPU: cluster.GPUUse{BusyMs: 7, KnownMs: 8}}},
		History: []cluster.Note{
			{At: 1, Reason: cluster.ReasonResources, Planned: 90, Promised: true}, {At: 2, Reason: cluster.ReasonResources, Planned: 99, Promised: true, Broken: "node n1 was drained"},
			{At: 99, Planned: 99, Promised: true}, {At: 100, Reason: cluster.ReasonPriority, Planned: 200, Promised: true}, {At: 101, Reason: cluster.ReasonPriority},
		},
	}
}

func TestJob(t *testing.T) {
	got := make(map[string]*Tally)
	Job(trained(), 0, Slots, func(slot cluster.Instant, k Key) *Tally {
		name := fmt.Sprintf("%d %s %s", slot.Sub(minute(0))/Slot, k.Partition, k.GPUType)
		if got[name] == nil {
			got[name] = &Tally{}
		}
		return got[name]
	})
	const m = 60_000
	want := map[string]*Tally{
		"0 big a100": {GPU: 10 * m}, "0 big h100": {GPU: 20 * m, CPU: 40 * m, Node: 10 * m, Attempts: 1, Fault: 30 * m, CPUHeld: 40 * m, GPUBusy: 7, GPUKnown: 8},
		"1 main a100": {GPU: 10 * m}, "1 main h100": {GPU: 20 * m, CPU: 40 * m, Node: 10 * m},
		"2 main a100": {GPU: 30 * m}, "2 main h100": {GPU: 60 * m, CPU: 120 * m, Node: 30 * m},
		"3 main a100": {GPU: 10 * m}, "3 main h100": {
			GPU: 20 * m, CPU: 40 * m, Node: 10 * m, Attempts: 1, Preempt: 150 * m, CPUUsed: m, CPUHeld: 200 * m, MemUsed: 50 * 3000, MemHeld: 100 * 3000, Charged: 9,
			Kept: 1, Broken: 1, Dropped: 1, Causes: []Cause{{"node was drained", 1}}, GPUBusy: 45, GPUKnown: 150,
		},
	}
	end := want["3 main h100"]
	end.Ended[cluster.Preempted-first] = 1
	end.Wait.Count(10 * time.Minute)
	for name, w := range want {
		if !reflect.DeepEqual(got[name], w) {
			t.Errorf("%s is %+v, want %+v", name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d tallies, want %d", len(got), len(want))
	}
}

// TestElasticJob: a job whose nodes changed counts what it had, not its last nodes for the whole time.
func TestElasticJob(t *testing.T) {
	const m = 60_000
	j := trained()
	j.TRES = []cluster.Amount{{Resource: "cpu", Count: 4}, {Resource: "gpu", Count: 1}, {Resource: "gpu:h100", Count: 1}, {Resource: "node", Count: 1}}
	j.Alloc = &cluster.Allocation{Nodes: []cluster.NodeAllocation{{Node: "n1", CPUs: 4, GPUs: []int32{0}}}}
	j.Members = &cluster.Members{Resizes: 1, List: []cluster.Member{{Joined: j.Started}}}
	j.Members.Left.Held = cluster.HeldTime{NodeMs: 30 * m, CPUMs: 120 * m, GPUMs: 90 * m} // with 3 GPUs for 30 minutes
	j.Attempts = nil
	var all Tally
	Job(j, 0, Slots, func(cluster.Instant, Key) *Tally { return &all })
	if all.GPU != 140*m || all.Preempt != 140*m || all.CPU != 320*m || all.CPUHeld != 320*m || all.Node != 80*m {
		t.Errorf("%+v", all)
	}
	j.Ended = j.Started.Add(time.Microsecond)
	Job(j, 0, Slots, func(cluster.Instant, Key) *Tally { return &all })
}

// TestRunningJobCountsAsItWillWhenItHasEnded: what a report of a past period says of a
// job that still runs is what it says later.
func TestRunningJobCountsAsItWillWhenItHasEnded(t *testing.T) {
	sum := func(j *cluster.Job, until cluster.Instant) (all Tally) {
		var none Tally
		Job(j, until, Slots, func(slot cluster.Instant, _ Key) *Tally {
			if slot < minute(60) {
				return &all
			}
			return &none
		})
		return all
	}
	running := trained()
	running.State, running.Ended = cluster.Running, 0
	if now, later := sum(running, minute(60)), sum(trained(), 0); !reflect.DeepEqual(now, later) || now.GPU == 0 {
		t.Errorf("while it runs %+v, later %+v", now, later)
	}
}

// TestAttemptsStayWhereTheyWere: a job that waits again and is given another account and
// QOS takes nothing of its earlier attempts with it.
func TestAttemptsStayWhereTheyWere(t *testing.T) {
	j := trained()
	j.Attempts[0].Account, j.Attempts[0].QOS = "before", "batch"
	gpu := make(map[Key]int64)
	sums := make(map[Key]*Tally)
	Job(j, 0, Slots, func(_ cluster.Instant, k Key) *Tally {
		k.Partition, k.GPUType = "", ""
		if sums[k] == nil {
			sums[k] = &Tally{}
		}
		return sums[k]
	})
	for k, s := range sums {
		gpu[k] = s.GPU / 60_000
	}
	if want := (map[Key]int64{{Account: "before", User: "u", QOS: "batch"}: 30, {Account: "a", User: "u", QOS: "q"}: 150}); !reflect.DeepEqual(gpu, want) {
		t.Errorf("GPU minutes %v, want %v", gpu, want)
	}
}

// TestGPUTypeOfAnAttempt: what was charged for an attempt stays under its type when the
// job runs again on another.
func TestGPUTypeOfAnAttempt(t *testing.T) {
	j := trained()
	j.Attempt = 3
	j.Attempts = append(j.Attempts, cluster.AttemptRecord{Attempt: 2, Started: minute(1), TRES: []cluster.Amount{{Resource: "gpu", Count: 1}, {Resource: "gpu:l40s", Count: 1}}})
	for attempt, want := range map[cluster.Attempt]string{2: "l40s", 3: "h100", 9: "h100"} {
		if got := GPUType(j, attempt); got != want {
			t.Errorf("attempt %d counts as %q, want %q", attempt, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	grid := Cut([]cluster.Instant{minute(10), minute(30), minute(45), minute(50)})
	for at, want := range map[int][2]int{0: {0, 10}, 10: {10, 30}, 29: {10, 30}, 30: {30, 45}, 47: {45, 50}, 50: {50, 60}, 60: {60, 90}} {
		if begin, end := grid(minute(at)); begin != minute(want[0]) || end != minute(want[1]) {
			t.Errorf("minute %d is in %d to %d, want %v", at, begin.Sub(minute(0))/time.Minute, end.Sub(minute(0))/time.Minute, want)
		}
	}
}

func TestCauses(t *testing.T) {
	for why, want := range map[string]string{
		"node n1 is lost": "node is lost", "job 12_3 has not left its nodes in time": "job has not left its nodes in time", "it started 0:05:00 late": "it started late",
		"GrpTRES gpu is 64: 60 used": "GrpTRES gpu is N: N used", "node": "node", "partition short allows 30:00": "partition allows N:N",
		"node n1 is still cleaning up after job 12_3": "node is still cleaning up after job N_N",
	} {
		if got := plain(why); got != want {
			t.Errorf("%q became %q, want %q", why, got, want)
		}
	}
}

// TestQuantiles compares with the sorted durations themselves.
func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var a, b Histogram
		var all []int64
		for range 1 + r.IntN(500) {
			s := r.Int64N(1 << (1 + r.IntN(30)))
			all = append(all, s)
			[]*Histogram{&a, &b}[r.IntN(2)].Count(time.Duration(s) * time.Second)
		}
		a.Add(&b)
		slices.Sort(all)
		for _, p := range []int64{1, 50, 95, 100} {
			exact := all[(int64(len(all))*p+99)/100-1]
			if got := int64(a.Quantile(p).Seconds()); got > exact || exact-got > exact/16 || exact < 32 && got != exact {
				t.Fatalf("%d %% of %v is %d, want %d", p, all, got, exact)
			}
		}
	}
	if bin := binOf(1<<64 - 1); bin > LastBin {
		t.Errorf("the last bin is %d, said to be %d", bin, LastBin)
	}
}

func FuzzDecode(f *testing.F) {
	t := Tally{GPU: 5, Causes: []Cause{{"x", 2}}}
	t.Wait.Count(time.Hour)
	f.Add(t.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Decode(data)
		if err != nil {
			return
		}
		y, err := Decode(x.Encode())
		if err != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("%+v became %+v, %v", x, y, err)
		}
		x.Wait.Quantile(95)
		(&Tally{}).Add(x)
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(AppendKey(nil, Key{"a", "u", "p", "q", "", "w"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, ok := ParseKey(data); ok && string(AppendKey(nil, k)) != string(data) {
			t.Errorf("%q became %+v", data, k)
		}
	})
}
