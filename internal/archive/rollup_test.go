package archive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// firstDay is when the first of these tests' jobs end.
var firstDay = cluster.InstantOf(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)) // never written

// finished returns a synthetic ended job, a function of its number.
func finished(seq uint64, every time.Duration) Record {
	r := rand.New(rand.NewPCG(seq, 7))
	ended := firstDay.Add(time.Duration(seq) * every)
	ran := time.Duration(r.ExpFloat64() * float64(2*time.Hour)).Truncate(time.Millisecond)
	gpus := int64(1) << r.IntN(5)
	kind := [...]string{"h100", "a100", "l40s"}[r.IntN(3)]
	user := r.IntN(300)
	j := &cluster.Job{
		ID: cluster.JobID(seq), Index: cluster.NoIndex, State: cluster.Completed + cluster.JobState(r.IntN(8)), Attempt: 1,
		Submitted: ended.Add(-ran - time.Duration(r.IntN(7200))*time.Second), Started: ended.Add(-ran), Ended: ended,
		Partition: "main", Spec: &cluster.JobSpec{
			Name: "train", Owner: cluster.Identity{User: fmt.Sprintf("user%03d", user), UID: uint32(user + 1000)}, Account: fmt.Sprintf("account%02d", user/10),
			Partition: "main", QOS: [...]string{"standard", "batch"}[user%2], Request: cluster.Request{Nodes: 1, GPUs: int32(gpus), TasksPerNode: 1, CPUsPerTask: 8},
		},
		TRES:  []cluster.Amount{{Resource: "cpu", Count: 8 * gpus}, {Resource: "gpu", Count: gpus}, {Resource: "gpu:" + kind, Count: gpus}, {Resource: "mem", Count: 65536}, {Resource: "node", Count: 1}},
		Tasks: cluster.NewTasks(cluster.Task{Node: "n1", Phase: cluster.TaskClean, CPUTime: ran * 3, Memory: 10 << 30}),
	}
	return Record{Seq: seq, ID: j.ID, User: j.Spec.Owner.User, Account: j.Spec.Account, State: j.State, Submitted: j.Submitted, Ended: ended, Data: command.EncodeJob(j)}
}

// listing formats the whole roll-up.
func listing(t testing.TB, a *Archive) string {
	t.Helper()
	var b strings.Builder
	var bounds []cluster.Instant
	for at := firstDay - 10*day; at < firstDay+10*day; at += cluster.Instant(tally.Slot) {
		bounds = append(bounds, at)
	}
	slots := make(map[tally.Key]*tally.Tally)
	rolled, err := a.Tallies(bounds, func(period int, k tally.Key, x *tally.Tally) {
		fmt.Fprintf(&b, "%d %v %+v\n", period, k, *x)
		sum(slots, k, x)
	})
	days := make(map[tally.Key]*tally.Tally) // the same by whole days and the rest
	_, e := a.Tallies([]cluster.Instant{bounds[0], bounds[len(bounds)-1]}, func(_ int, k tally.Key, x *tally.Tally) { sum(days, k, x) })
	if must(t, e); !reflect.DeepEqual(slots, days) {
		t.Errorf("days come to something else than their half hours")
	}
	must(t, err)
	fmt.Fprintf(&b, "%+v\n", rolled)
	return b.String()
}

func sum(sums map[tally.Key]*tally.Tally, k tally.Key, t *tally.Tally) {
	if sums[k] == nil {
		sums[k] = &tally.Tally{}
	}
	sums[k].Add(t)
}

func TestRollUpDoesNotDependOnHowRecordsCame(t *testing.T) {
	const n = 3000
	var all []Record
	for seq := uint64(1); seq <= n; seq++ {
		all = append(all, finished(seq, time.Minute))
	}
	one := open(t, filepath.Join(t.TempDir(), "one"))
	must(t, one.Append(1, all, nil))
	want := listing(t, one)
	if strings.Count(want, "\n") < 1000 || !strings.Contains(want, fmt.Sprintf("{Seq:%d Missing:false Illegible:0}", n)) {
		t.Fatalf("the roll-up is %d lines", strings.Count(want, "\n"))
	}
	batches := open(t, filepath.Join(t.TempDir(), "batches"))
	for from := 0; from < n; {
		to := min(n, from+1+rand.IntN(200))
		must(t, batches.Append(uint64(to), all[from:to], nil))
		if from = to; rand.IntN(4) == 0 {
			listing(t, batches)
		}
	}
	if got := listing(t, batches); got != want {
		t.Error("batches of other sizes give another roll-up")
	}
	gap := open(t, filepath.Join(t.TempDir(), "gap"))
	must(t, gap.Append(1, all[:500], nil))
	must(t, gap.Append(2, all[900:], nil))
	if got := listing(t, gap); !strings.Contains(got, "{Seq:500 Missing:true") {
		t.Error("a roll-up with a gap does not say so:", got[max(0, len(got)-60):])
	}
	must(t, gap.Fill(all[500:900], nil))
	if got := listing(t, gap); got != want {
		t.Error("filled gaps give another roll-up")
	}
}

func TestRollUpFollowsAnotherHistory(t *testing.T) {
	a := open(t, t.TempDir())
	var all, other []Record
	for seq := uint64(1); seq <= 100; seq++ {
		all, other = append(all, finished(seq, time.Minute)), append(other, finished(seq, 2*time.Minute))
	}
	must(t, a.Append(1, all, nil))
	listing(t, a)
	must(t, a.Append(2, append(append([]Record{}, all[:50]...), other[50:]...), nil))
	b := open(t, t.TempDir())
	must(t, b.Append(1, all[:50], nil))
	must(t, b.Append(2, other[50:], nil))
	if got, want := listing(t, a), listing(t, b); got != want {
		t.Errorf("after another history was restored the roll-up is\n%s\nwant\n%s", got, want)
	}
}

func TestDamagedRollUpIsRebuilt(t *testing.T) {
	a := open(t, t.TempDir())
	for seq := uint64(1); seq <= 50; seq++ {
		must(t, a.Append(seq, []Record{finished(seq, time.Second)}, nil))
	}
	want := listing(t, a)
	must(t, a.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketTally)
		c := b.Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			if err := b.Put(k, []byte{0x7f, 1}); err != nil {
				return err
			}
		}
		return nil
	}))
	if _, err := a.Tallies([]cluster.Instant{firstDay, firstDay + day/2}, func(int, tally.Key, *tally.Tally) {}); !errors.Is(err, errTally) {
		t.Errorf("a damaged roll-up was read: %v", err)
	}
	must(t, a.Append(51, []Record{finished(51, time.Second)}, nil))
	b := open(t, t.TempDir())
	for seq := uint64(1); seq <= 51; seq++ {
		must(t, b.Append(seq, []Record{finished(seq, time.Second)}, nil))
	}
	if got := listing(t, a); got != listing(t, b) || got == want {
		t.Errorf("the roll-up is\n%s", got)
	}
}

func TestRecordsThatCannotBeReadAreCounted(t *testing.T) {
	a := open(t, t.TempDir())
	must(t, a.Append(1, append(records(1, 3), finished(4, time.Minute)), nil))
	if got := listing(t, a); !strings.Contains(got, "{Seq:4 Missing:false Illegible:3}") {
		t.Error(got)
	}
}

func TestEndedPagesAscend(t *testing.T) {
	a := open(t, t.TempDir())
	must(t, a.Append(1, records(1, 100), nil))
	var got []uint64
	var at Position
	for {
		page, next, err := a.Ended(20e9, 70e9, at, 7)
		must(t, err)
		for _, r := range page {
			got = append(got, r.Seq)
		}
		if at = next; len(page) < 7 {
			break
		}
	}
	if len(got) != 50 || got[0] != 20 || got[49] != 69 {
		t.Errorf("pages hold %v", got)
	}
}
