package credits

import (
	"errors"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Amendable is the time after a provisional bill in which a late report may change it.
const Amendable = 24 * time.Hour

// Bounds of what is kept of attempts that were billed, so that they can be refunded:
// the oldest are forgotten first.
const (
	lienLife = 92 * 24 * time.Hour
	maxLiens = 1_000_000
)

// ProvisionalBill is an attempt that ended when nodes of it were lost, and was charged for the time
// that they had reported. For a day they may return and prove more. Like every value of a table it
// is replaced, never changed.
type ProvisionalBill struct {
	Nodes   []string        // that were lost and have not returned
	Ran     time.Duration   // how long it had its GPUs by the log, or by the lost node that had it shortest
	Forgive time.Duration   // the time that a later charge also refunds, since a fault destroyed the work
	Saved   cluster.Instant // until when its work is saved: only later work is refunded
	Granted uint64          // cluster.Job.Granted of the attempt
	Cause   string          // why the attempt ended
}

func billFields(c *codec.Coder, x *ProvisionalBill) {
	codec.List(c, &x.Nodes, codec.String)
	codec.Int(c, &x.Ran)
	codec.Int(c, &x.Forgive)
	codec.Int(c, &x.Saved)
	codec.Uint(c, &x.Granted)
	codec.String(c, &x.Cause)
}

func lienKey(c *codec.Coder, x *accounting.LienID) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
}

var billSchema = table.Schema[accounting.LienID, *ProvisionalBill]{ // never written
	Kind: table.ProvisionalBills, Compare: accounting.CompareLiens, Key: lienKey, Fields: table.Pointer(billFields),
}

func (x *Credits) readBill(c *codec.Coder) {
	if id, u := x.bills.Decode(c); len(u.Nodes) == 0 {
		c.Fail("the late attempt %s is not well formed", id)
	}
}

// ProvisionalBills yields the provisional bills, by lien.
func (x *Credits) ProvisionalBills() iter.Seq2[accounting.LienID, *ProvisionalBill] {
	return x.bills.All()
}

// LateReport is the report on an attempt by a node that was lost and returned.
type LateReport struct {
	lien accounting.LienID
	node string
	ran  time.Duration
}

// LateReportOf returns the late report in a node's report of an orphan: of a task that ended, from
// a node that has not reported it yet.
func (x *Credits) LateReportOf(node string, r *command.TaskReport) (late LateReport, is bool) {
	if r.Task.Phase < cluster.TaskEnded {
		return late, false
	}
	id := accounting.LienID{Job: r.Job, Attempt: r.Attempt}
	u, waits := x.bills.Get(id)
	if !waits || !slices.Contains(u.Nodes, node) || !r.OfGrant(u.Granted) {
		return late, false
	}
	// Both may be too short and neither too long: a daemon counts from when it was
	// started, and a record from when the script was.
	ran := max(0, r.Ran)
	if r.Task.Started > 0 {
		ran = max(ran, r.Task.Ended.Sub(r.Task.Started))
	}
	return LateReport{id, node, ran}, true
}

// ApplyLateReport applies a late report. When the last lost node has returned, the bill is amended.
func (x *Credits) ApplyLateReport(now cluster.Instant, late LateReport) {
	old, waits := x.bills.Get(late.lien)
	if !waits {
		return
	}
	u := *old
	u.Nodes = slices.DeleteFunc(slices.Clone(u.Nodes), func(name string) bool { return name == late.node })
	u.Ran = min(u.Ran, late.ran)
	if len(u.Nodes) == 0 {
		x.amend(now, late.lien, &u)
		return
	}
	x.bills.Set(late.lien, &u)
}

// amend charges an attempt for the time that its nodes prove: never less than they had reported,
// and never more than the log shows.
func (x *Credits) amend(now cluster.Instant, id accounting.LienID, u *ProvisionalBill) {
	n, _ := x.ledger.Lien(id)
	total := int64(-1)
	if last := len(n.Segments) - 1; last >= 0 {
		g := &n.Segments[last]
		total = max(g.Base+g.Count, accounting.Millis(g.GPUs, u.Ran))
	}
	_, err := x.ledger.Amend(logStamp(now), id, total)
	if errors.Is(err, accounting.ErrTooLate) {
		return // an overdue bill becomes final in a moment
	}
	if err != nil {
		x.fault("lien %s: amend: %w", id, err)
	}
	x.bills.Delete(id)
	if is, _ := x.ledger.Lien(id); u.Forgive > 0 {
		before, _ := n.Latest(u.Saved, math.MaxInt64)
		after, _ := is.Latest(u.Saved, math.MaxInt64)
		x.refundLast(now, &is, u.Saved, min(u.Forgive, after-before), u.Cause)
	}
}

// CloseBills makes provisional bills final after a day, and drops the oldest final ones. O(most ×
// log n).
func (x *Credits) CloseBills(now cluster.Instant, most int) {
	for range most {
		id, ended, found := x.ledger.OldestProvisional()
		if !found || now.Sub(ended) <= Amendable {
			break
		}
		if _, err := x.ledger.Amend(logStamp(now), id, -1); err != nil {
			x.fault("lien %s: close: %w", id, err)
			break
		}
		x.bills.Delete(id)
	}
	x.ledger.Forget(now.Add(-lienLife), most)
	if over := x.ledger.EndedLiens() - maxLiens; over > 0 {
		x.ledger.Forget(cluster.Never, min(most, over))
	}
}

// lostNodes returns the nodes of a job that could not report how their tasks ended.
func lostNodes(j *cluster.Job) (lost []string) {
	for _, t := range j.Tasks.All() {
		if t.Cause == cluster.TaskLost {
			lost = append(lost, t.Node)
		}
	}
	return lost
}
