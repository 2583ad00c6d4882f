package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// choiceCase is a full cluster of nodes with four GPUs, and a job that needs some of them whole.
type choiceCase struct {
	jobs []choiceJob
	need int
	text string
}

// choiceJob is a running job that has whole nodes: the extra ones are reclaimed where that helps.
type choiceJob struct {
	least, extra int
	fixed        bool // it may not be preempted
	minutes      int  // that it has run
}

// newChoiceCase returns a random case with at most seven jobs.
func newChoiceCase(r *rand.Rand) *choiceCase {
	x := &choiceCase{}
	var b strings.Builder
	b.WriteString("qos high tier=9 preempts=low\nqos low tier=1 mode=requeue\nrules . exempt=0s\n")
	node := 0
	for id := range 2 + r.IntN(6) {
		j := choiceJob{least: 1 + r.IntN(2), extra: max(0, r.IntN(5)-2), fixed: r.IntN(4) == 0, minutes: 30 + r.IntN(200)}
		var on []string
		for range j.least + j.extra {
			fmt.Fprintf(&b, "node n%02d gpus=4\n", node)
			on = append(on, fmt.Sprintf("n%02d:0-3", node))
			node++
		}
		fmt.Fprintf(&b, "run %d on=%s gpus=4 nodes=%d limit=20h left=15h ran=%dm", id+1, strings.Join(on, ","), j.least, j.minutes)
		if j.extra > 0 {
			fmt.Fprintf(&b, " most=%d step=1", j.least+j.extra)
		}
		if !j.fixed {
			b.WriteString(" qos=low")
		}
		b.WriteString("\n")
		x.jobs = append(x.jobs, j)
	}
	x.need = 1 + r.IntN(node)
	fmt.Fprintf(&b, "job 99 nodes=%d gpus=4 limit=1h qos=high\n", x.need)
	x.text = b.String()
	return x
}

// loss returns the loss of a set of jobs, and whether the job fits once they have ended and extra nodes are reclaimed.
func (x *choiceCase) loss(set int) (loss int64, fits bool) {
	free := 0
	for i, j := range x.jobs {
		free += j.extra
		if set>>i&1 > 0 {
			if j.fixed {
				return 0, false
			}
			free += j.least
			loss += int64(j.least+j.extra) * 4 * int64(j.minutes+5) * 60
		}
	}
	return loss, free >= x.need
}

// TestElasticAgainstAllSets compares 500 random cases with extra nodes with the best of all sets: no job ends where
// reclaiming extra nodes is enough, one is preempted wherever that lets the job start, and at most twice the least work is lost.
func TestElasticAgainstAllSets(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	none, equal, worse := 0, 0, 0
	for n := range 500 {
		x := newChoiceCase(r)
		best, possible := int64(0), false
		for set := range 1 << len(x.jobs) {
			if loss, fits := x.loss(set); fits && (!possible || loss < best) {
				best, possible = loss, true
			}
		}
		d := Decide(draw(t, x.text))
		set := 0
		for _, e := range d.Plan.Evictions {
			set |= 1 << (e.Job - 1)
		}
		loss, fits := x.loss(set)
		switch {
		case !possible || best == 0:
			if none++; set != 0 {
				t.Errorf("case %d: jobs end without need: %v\n%s", n, d.Plan.Evictions, x.text)
			}
		case !fits || loss > 2*best:
			t.Errorf("case %d: loss %d (%v), at best %d: %v\n%s", n, loss, fits, best, d.Plan.Evictions, x.text)
		case loss == best:
			equal++
		default:
			worse++
		}
	}
	t.Logf("%d without victims; %d at the least loss, %d above", none, equal, worse)
}
